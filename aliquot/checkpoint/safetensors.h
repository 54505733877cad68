// safetensors files: named tensors in one file, read by mmap and written one tensor at a time. Torch-free.
//
// Format (huggingface/safetensors): u64 little-endian N; N bytes of JSON, padded with spaces to a multiple of
// 8; the tensors' bytes. The JSON is {"__metadata__": {"format": "pt"}, "name": {"dtype": "F32", "shape": [2,
// 3], "data_offsets": [begin, end]}, …}; offsets count from the end of the header, without holes or overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aliquot::safetensors {

struct TensorInfo {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", "F16", …
  std::vector<int64_t> shape;

  int64_t numel() const;
  int64_t bytes() const;
};

/// Bytes of one element; 0 for what the format does not have or packs into less than a byte (F4, F6).
int64_t dtype_bytes(const std::string& dtype);

/// Order of tensors in a file, the reference writer's: larger elements first, then by name. Indices into
/// `infos`.
std::vector<size_t> file_order(const std::vector<TensorInfo>& infos);

/// An open file; tensors are views into its mapping.
class File {
 public:
  /// Throws IoError naming the file and the tensor: missing, truncated, a header that is no JSON, a name that
  /// comes twice, offsets that leave holes, overlap or do not match dtype and shape.
  explicit File(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  /// Throws IoError if the file has no such tensor. Aligned to the element only where the file's writer
  /// padded.
  std::span<const std::byte> data(const std::string& name) const;

 private:
  struct Range {
    uint64_t begin, end;  // from the end of the header
  };

  void map();
  void parse();
  void check_ranges() const;

  std::filesystem::path path_;
  const std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t header_bytes_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, Range> ranges_;
};

/// Writes a file under a temporary name (path + ".part") and gives it its own when it is whole; before that,
/// an older file of that name stays as it is, and a writer that is given up leaves nothing.
class Writer {
 public:
  /// Throws IoError. The bytes written are those of the reference implementation.
  Writer(std::filesystem::path path, const std::vector<TensorInfo>& infos);
  ~Writer();
  Writer(Writer&& other) noexcept;
  Writer& operator=(Writer&&) = delete;

  /// One tensor, contiguous, in file_order. Throws IoError when the disk does not take it, naming path and
  /// bytes.
  void write(const std::string& name, const void* data, size_t bytes);

  /// Everything is on the disk, under the temporary name. Throws IoError.
  void seal();
  /// The sealed file gets its name. Throws IoError.
  void publish();
  void finish() {
    seal();
    publish();
  }

 private:
  void put(const void* data, size_t bytes, std::string_view what);
  void put_header();

  std::filesystem::path path_, temporary_;
  std::vector<TensorInfo> order_;
  size_t next_ = 0;
  bool header_written_ = false;
  int fd_ = -1;
  bool temporary_exists_ = false;
};

}  // namespace aliquot::safetensors
