#include "aliquot/comm/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "aliquot/error.h"

namespace aliquot::shm {
namespace {

// fallocate gives up, and undoes its work, at any signal: in pieces, a signal costs one piece.
constexpr size_t kPiece = size_t{256} << 20;

double mib(size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

[[noreturn]] void fail(std::string_view what, int error) {
  throw CommError(fmt::format("shared memory: {}: {}", what, std::strerror(error)));
}

class MappedSegment final : public SharedSegment {
 public:
  MappedSegment(int fd, size_t bytes) : bytes_(bytes) {
    if (bytes_ == 0) return;
    read_ = map(fd, PROT_READ);
    write_ = map(fd, PROT_READ | PROT_WRITE);
    if (read_ != MAP_FAILED && write_ != MAP_FAILED) return;
    const int error = errno;
    unmap();
    fail(fmt::format("cannot map {:.1f} MiB", mib(bytes_)), error);
  }
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;
  ~MappedSegment() override { unmap(); }

  const std::byte* read() const override {
    return bytes_ == 0 ? nullptr : static_cast<const std::byte*>(read_);
  }
  std::byte* write() const override { return bytes_ == 0 ? nullptr : static_cast<std::byte*>(write_); }
  size_t bytes() const override { return bytes_; }

 private:
  void* map(int fd, int protection) const { return mmap(nullptr, bytes_, protection, MAP_SHARED, fd, 0); }
  void unmap() {
    if (read_ != MAP_FAILED) munmap(read_, bytes_);
    if (write_ != MAP_FAILED) munmap(write_, bytes_);
  }

  size_t bytes_;
  void* read_ = MAP_FAILED;
  void* write_ = MAP_FAILED;
};

/// What the kernel could still give without killing anybody; nothing known is no limit.
size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  return SIZE_MAX;
}

}  // namespace

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Fd create_memory(size_t bytes) {
  // Anonymous memory has no size limit of its own: asking for more than there is would wake the kernel's
  // out-of-memory killer.
  if (const size_t available = available_memory(); bytes > available) {
    throw CommError(
        fmt::format("shared memory: {:.1f} MiB are wanted and {:.1f} MiB are available on this host",
                    mib(bytes), mib(available)));
  }
  Fd memory(memfd_create("aliquot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create", errno);
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) {
    fail(fmt::format("cannot size a segment to {:.1f} MiB", mib(bytes)), errno);
  }
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("cannot seal a segment", errno);
  return memory;
}

void reserve(const Fd& memory, size_t begin, size_t end) {
  while (begin < end) {
    const size_t bytes = std::min(end - begin, kPiece);
    const int error = posix_fallocate(memory.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes));
    if (error == EINTR) continue;
    if (error != 0) fail(fmt::format("cannot reserve {:.1f} MiB", mib(end - begin)), error);
    begin += bytes;
  }
}

std::shared_ptr<SharedSegment> map_segment(const Fd& memory, size_t bytes) {
  return std::make_shared<MappedSegment>(memory.get(), bytes);
}

}  // namespace aliquot::shm
