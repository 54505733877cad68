#include "aliquot/checkpoint/hf_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "aliquot/error.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Tensor → file name.
std::map<std::string, std::string> weight_map(const fs::path& index) {
  std::ifstream in(index);
  const json object = json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto map = object.is_object() ? object.find("weight_map") : object.end();
  if (map == object.end() || !map->is_object()) {
    throw IoError(fmt::format("{}: expected a JSON object with \"weight_map\"", index.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      throw IoError(fmt::format("{}: weight_map.{} must name a file of the folder", index.string(), name));
    }
    files.emplace(name, file.get<std::string>());
  }
  return files;
}

std::string nothing_found(const fs::path& folder) {
  if (fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json")) {
    return fmt::format(
        "{}: holds pytorch_model.bin, which is not read; save the model again as safetensors "
        "(save_pretrained does)",
        folder.string());
  }
  return fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", folder.string());
}

}  // namespace

HfFolder::HfFolder(const fs::path& folder) : folder_(folder) {
  const fs::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(whole)) {
    files_.emplace_back(whole);
    for (const auto& [name, info] : files_.back().tensors()) file_of_.emplace(name, 0);
  } else if (fs::exists(index)) {
    open_shards(index);
  } else {
    throw IoError(nothing_found(folder));
  }
}

void HfFolder::open_shards(const fs::path& index) {
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : weight_map(index)) {
    const auto [it, first] = opened.emplace(file, files_.size());
    if (first) files_.emplace_back(folder_ / file);
    if (!files_[it->second].tensors().contains(name)) {
      throw IoError(fmt::format("{}: lacks tensor {}, which {} says it holds", (folder_ / file).string(),
                                name, index.filename().string()));
    }
    file_of_.emplace(name, it->second);
  }
}

const safetensors::File& HfFolder::file_of(const std::string& name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) throw IoError(fmt::format("{}: has no tensor {}", folder_.string(), name));
  return files_[it->second];
}

const safetensors::TensorInfo& HfFolder::info(const std::string& name) const {
  return file_of(name).tensors().at(name);
}

std::span<const std::byte> HfFolder::data(const std::string& name) const {
  return file_of(name).data(name);
}

std::vector<std::string> HfFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

std::string LoadReport::problem(bool allow_missing) const {
  std::string text;
  if (!missing.empty() && !allow_missing) {
    text += fmt::format("{} parameters are missing ({})", missing.size(), fmt::join(missing, ", "));
    if (!unexpected.empty()) text += fmt::format("; not in the model: {}", fmt::join(unexpected, ", "));
  }
  if (!mismatched.empty()) {
    text += fmt::format("{}not as the model has them ({})", text.empty() ? "" : "; ",
                        fmt::join(mismatched, "; "));
  }
  return text;
}

}  // namespace aliquot
