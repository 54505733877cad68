// A model as a Hugging Face folder: config.json and model.safetensors, whole or in shards. Torch-free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "aliquot/checkpoint/safetensors.h"

namespace aliquot {

/// The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json lists.
class HfFolder {
 public:
  /// Throws IoError naming the folder, the file and the tensor that is missing or damaged.
  explicit HfFolder(const std::filesystem::path& folder);

  bool has(const std::string& name) const { return file_of_.contains(name); }
  /// Throw IoError if the folder has no such tensor.
  const safetensors::TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> data(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  void open_shards(const std::filesystem::path& index);
  const safetensors::File& file_of(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<safetensors::File> files_;
  std::map<std::string, size_t> file_of_;
};

/// What became of a model's parameters when a folder was loaded.
struct LoadReport {
  std::vector<std::string> loaded, missing, unexpected;
  std::vector<std::string> mismatched;  ///< "name: file [3, 4], model [4, 3]"
  /// Empty if every parameter was loaded; else what is wrong, ready for an IoError.
  std::string problem(bool allow_missing = false) const;
};

/// As transformers 5 does: one file for all but the largest models.
constexpr int64_t kMaxShardBytes = 50'000'000'000;

/// Writes a folder, one tensor at a time in safetensors::file_order, so that a model is never whole in
/// memory. config.json gains "dtype", that of the weights, which readers go by.
///
/// Until `finish`, whatever the folder held stays as it was. `finish` then takes away the old config.json
/// first and writes the new one last: a folder with a config.json is whole.
class HfFolderWriter {
 public:
  /// Creates the folder. A file holds tensors of `max_shard_bytes` at most, or a single larger one. Throws
  /// IoError.
  HfFolderWriter(const std::filesystem::path& folder, const std::string& config_json,
                 const std::vector<safetensors::TensorInfo>& infos, int64_t max_shard_bytes = kMaxShardBytes);
  /// One tensor, contiguous. Throws IoError when the disk does not take it.
  void write(const std::string& name, const void* data, size_t bytes);
  void finish();

 private:
  struct Shard {
    std::string file;
    std::vector<safetensors::TensorInfo> infos;
  };

  void split(const std::vector<safetensors::TensorInfo>& infos, int64_t max_shard_bytes);
  void open_next();
  std::string index_json() const;
  void remove_old() const;

  std::filesystem::path folder_;
  std::string config_json_;
  std::vector<Shard> shards_;
  std::vector<safetensors::Writer> writers_;  // one a shard begun; all but the last are sealed
  size_t written_ = 0;                        // tensors of the last one
};

}  // namespace aliquot
