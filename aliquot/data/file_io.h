// Reading files in pieces, with errors that name the file and the offset (internal to the folder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace aliquot {

/// Throws IoError "cannot <verb> <path>: <the system's words for errno>".
[[noreturn]] void throw_errno(std::string_view verb, const std::filesystem::path& path);

/// Reads up to `out.size()` bytes at `offset`; the count read, below that only at the end of the file.
size_t read_some(const std::filesystem::path& path, int64_t offset, std::span<std::byte> out);

/// Reads exactly `out.size()` bytes at `offset`; IoError if the file ends before.
void read_exactly(const std::filesystem::path& path, int64_t offset, std::span<std::byte> out);

/// Bytes of a regular file; IoError if there is none.
int64_t size_of_file(const std::filesystem::path& path);

/// How a mapped file will be read: random forgoes reading ahead, which would only evict what other ranks use.
enum class Access { random, sequential };

/// A whole file as read-only memory, paged in by use.
class MappedFile {
 public:
  MappedFile(std::filesystem::path path, Access access);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }

  /// Copies out.size() bytes from `offset`. The file's length is asked first: touching a page that a
  /// truncation has taken away would be SIGBUS, here it is an IoError.
  void copy(int64_t offset, std::span<std::byte> out) const;

  /// The little-endian value at `offset`.
  template <typename T>
  T read(int64_t offset) const {
    T value;
    copy(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  const std::byte* bytes_ = nullptr;
};

}  // namespace aliquot
