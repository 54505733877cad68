#include "aliquot/observe/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void throw_errno(std::string_view verb, const fs::path& path) {
  throw IoError(fmt::format("cannot {} {}: {}; choose another folder, or free space and rights there", verb,
                            path.string(), reason(errno)));
}

/// Writes all of `bytes` at `offset`; errno says why where it returns false.
bool write_at(int descriptor, std::string_view bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return true;
}

/// Writes a new file; on failure nothing is left of it.
void write_new(const fs::path& path, std::string_view contents) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_errno("create", path);
  const bool written = write_at(descriptor, contents, 0);
  const int error = errno;
  const bool closed = close(descriptor) == 0;
  if (written && closed) return;
  if (!written) errno = error;
  const int cause = errno;
  unlink(path.c_str());
  errno = cause;
  throw_errno("write", path);
}

}  // namespace

void prepare_output_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  std::error_code ignored;
  if (error || !fs::is_directory(folder, ignored))
    throw IoError(fmt::format("cannot create the output folder {}: {}; choose another", folder.string(),
                              error ? error.message() : "a file of that name is in the way"));
  const fs::path probe = folder / fmt::format(".writable.{}", getpid());
  // As much as a file system may keep in an inode or promise without having it would prove nothing.
  write_new(probe, std::string(1 << 16, '\0'));
  unlink(probe.c_str());
}

void replace_file(const fs::path& path, std::string_view contents) {
  const fs::path temporary = path.string() + ".tmp";
  write_new(temporary, contents);
  if (rename(temporary.c_str(), path.c_str()) != 0) throw_errno("rename a file to", path);
}

AppendFile::AppendFile(fs::path path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_errno("open", path_);
  struct stat status {};
  if (fstat(descriptor_, &status) == 0) size_ = status.st_size;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      lost_(other.lost_) {}

bool AppendFile::append(std::string_view record) {
  if (write_at(descriptor_, record, size_)) {
    size_ += static_cast<int64_t>(record.size());
    return true;
  }
  const int error = errno;
  // A half record is worse than none; on a full disk shortening always succeeds.
  const bool whole = ftruncate(descriptor_, size_) == 0;
  if (lost_++ == 0)
    log::warn("cannot write {}: {}; training goes on, what cannot be written is lost{}", path_.string(),
              reason(error), whole ? "" : ", and the file's last record is incomplete");
  return false;
}

void AppendFile::truncate(int64_t size) {
  if (ftruncate(descriptor_, size) != 0) throw_errno("shorten", path_);
  size_ = size;
}

}  // namespace aliquot
