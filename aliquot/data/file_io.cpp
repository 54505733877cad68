#include "aliquot/data/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "aliquot/error.h"

namespace aliquot {

namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw_errno("open", path);
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int64_t size_of_descriptor(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw_errno("examine", path);
  if (!S_ISREG(status.st_mode))
    throw IoError(fmt::format("{} is not a regular file; give a file or a folder of files", path.string()));
  return status.st_size;
}

[[noreturn]] void throw_shrunk(const std::filesystem::path& path, int64_t offset, size_t wanted,
                               int64_t size) {
  throw IoError(fmt::format(
      "{}: {} bytes were expected at offset {}, but the file now ends at {}; it was changed after "
      "it was opened",
      path.string(), wanted, offset, size));
}

}  // namespace

void throw_errno(std::string_view verb, const std::filesystem::path& path) {
  throw IoError(fmt::format("cannot {} {}: {}", verb, path.string(), std::generic_category().message(errno)));
}

size_t read_some(const std::filesystem::path& path, int64_t offset, std::span<std::byte> out) {
  const Descriptor file(path);
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(file.get(), out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void read_exactly(const std::filesystem::path& path, int64_t offset, std::span<std::byte> out) {
  const size_t got = read_some(path, offset, out);
  if (got < out.size()) throw_shrunk(path, offset, out.size(), offset + static_cast<int64_t>(got));
}

int64_t size_of_file(const std::filesystem::path& path) {
  const Descriptor file(path);
  return size_of_descriptor(file.get(), path);
}

MappedFile::MappedFile(std::filesystem::path path, Access access) : path_(std::move(path)) {
  Descriptor file(path_);
  size_ = size_of_descriptor(file.get(), path_);
  if (size_ == 0) throw IoError(fmt::format("{} is empty", path_.string()));
  void* mapped = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) throw_errno("map", path_);
  madvise(mapped, static_cast<size_t>(size_), access == Access::random ? MADV_RANDOM : MADV_SEQUENTIAL);
  bytes_ = static_cast<const std::byte*>(mapped);
  descriptor_ = file.release();
}

MappedFile::~MappedFile() {
  munmap(const_cast<std::byte*>(bytes_), static_cast<size_t>(size_));
  close(descriptor_);
}

void MappedFile::copy(int64_t offset, std::span<std::byte> out) const {
  const int64_t end = offset + static_cast<int64_t>(out.size());
  check(offset >= 0 && end <= size_, "a read lies outside its mapped file");
  if (const int64_t now = size_of_descriptor(descriptor_, path_); now < end)
    throw_shrunk(path_, offset, out.size(), now);
  std::memcpy(out.data(), bytes_ + offset, out.size());
}

}  // namespace aliquot
