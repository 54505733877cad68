#include "aliquot/store/io_engine.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "aliquot/error.h"

namespace aliquot {

void IoJob::finish(std::string problem) {
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) problem_ = std::move(problem);
  if (--left_ == 0) ended_.notify_all();
}

bool IoJob::done() const {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

void IoJob::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return left_ == 0; });
  if (!problem_.empty()) throw IoError(problem_);
}

std::string describe(const IoRequest& r, int error) {
  std::string text = fmt::format("{}: {} of {} bytes at offset {} failed: {}", *r.path,
                                 r.write ? "write" : "read", r.bytes, r.offset, std::strerror(error));
  struct statvfs disk {};
  if (error == ENOSPC && fstatvfs(r.fd, &disk) == 0) {
    text += fmt::format(" ({} bytes are free)", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize);
  }
  return text;
}

std::string describe_end(const IoRequest& r) {
  return fmt::format("{}: read of {} bytes at offset {} met the end of the file", *r.path, r.bytes, r.offset);
}

}  // namespace aliquot
