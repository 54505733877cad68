// safetensors files: named tensors in one file, read by mmap and written one tensor at a time. Torch-free.
//
// Format (huggingface/safetensors): u64 little-endian N; N bytes of JSON, padded with spaces to a multiple of
// 8; the tensors' bytes. {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …,
// "__metadata__": {"format": "pt"}}; offsets count from the end of the header, without holes or overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace aliquot::safetensors {

struct TensorInfo {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", "F16", …
  std::vector<int64_t> shape;

  int64_t numel() const;
  int64_t bytes() const;
};

/// Bytes of one element; 0 for a dtype that the format does not have.
int64_t dtype_bytes(const std::string& dtype);

/// Order of tensors in a file, as the reference writer's: larger elements first, then by name. Indices into
/// `infos`.
std::vector<size_t> file_order(const std::vector<TensorInfo>& infos);

/// An open file; tensors are views into its mapping.
class File {
 public:
  /// Throws IoError naming the file and the tensor: missing, truncated, header that is no JSON, offsets that
  /// leave holes, overlap or do not match dtype and shape.
  explicit File(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  /// Throws IoError if the file has no such tensor.
  std::span<const std::byte> data(const std::string& name) const;

 private:
  void map();
  void parse();

  std::filesystem::path path_;
  const std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  size_t header_bytes_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::pair<size_t, size_t>> offsets_;
};

/// Writes a file under a temporary name and gives it its own at `finish`; without that nothing remains.
class Writer {
 public:
  /// Throws IoError. Tensors must then be written in file_order.
  Writer(std::filesystem::path path, const std::vector<TensorInfo>& infos);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Throws IoError when the disk does not take it, naming path and bytes.
  void write(const std::string& name, const void* data, size_t bytes);
  void finish();

 private:
  void put(const void* data, size_t bytes);

  std::filesystem::path path_, temporary_;
  std::vector<TensorInfo> order_;
  size_t next_ = 0;
  int fd_ = -1;
};

}  // namespace aliquot::safetensors
