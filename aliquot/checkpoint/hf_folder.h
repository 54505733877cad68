// A model as a Hugging Face folder: config.json and model.safetensors, whole or in shards. Torch-free.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "aliquot/checkpoint/safetensors.h"

namespace aliquot {

/// The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json lists.
class HfFolder {
 public:
  /// Throws IoError naming what is missing or damaged.
  explicit HfFolder(const std::filesystem::path& folder);

  bool has(const std::string& name) const { return file_of_.contains(name); }
  const safetensors::TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> data(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::vector<safetensors::File> files_;
  std::map<std::string, size_t> file_of_;
};

/// What became of a model's parameters when a folder was loaded.
struct LoadReport {
  std::vector<std::string> loaded, missing, unexpected;
  std::vector<std::string> mismatched;  ///< "name: file [3, 4], model [4, 3]"
  /// Empty if every parameter was loaded; else what is wrong, ready for an IoError.
  std::string problem() const;
};

/// Writes a folder, one tensor at a time in safetensors::file_order. config.json comes last: a folder without
/// it is not whole.
class HfFolderWriter {
 public:
  /// Creates the folder. Throws IoError.
  HfFolderWriter(std::filesystem::path folder, std::string config_json,
                 const std::vector<safetensors::TensorInfo>& infos);
  void write(const std::string& name, const void* data, size_t bytes) { weights_.write(name, data, bytes); }
  void finish();

 private:
  std::filesystem::path folder_;
  std::string config_json_;
  safetensors::Writer weights_;
};

}  // namespace aliquot
