#include "aliquot/checkpoint/hf_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "aliquot/error.h"

namespace aliquot {
namespace {

std::filesystem::path created(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(fmt::format("{}: cannot be created: {}", folder.string(), error.message()));
  return folder;
}

std::set<std::string> shards_of(const std::filesystem::path& index) {
  std::ifstream in(index);
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw IoError(fmt::format("{}: expected a JSON object with \"weight_map\"", index.string()));
  }
  std::set<std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string())
      throw IoError(fmt::format("{}: weight_map.{} must name a file", index.string(), name));
    files.insert(file.get<std::string>());
  }
  return files;
}

}  // namespace

HfFolder::HfFolder(const std::filesystem::path& folder) {
  std::set<std::string> names{"model.safetensors"};
  if (!std::filesystem::exists(folder / "model.safetensors")) {
    const std::filesystem::path index = folder / "model.safetensors.index.json";
    if (!std::filesystem::exists(index)) {
      throw IoError(
          fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", folder.string()));
    }
    names = shards_of(index);
  }
  for (const std::string& name : names) {
    files_.emplace_back(folder / name);
    for (const auto& [tensor, info] : files_.back().tensors()) {
      if (!file_of_.emplace(tensor, files_.size() - 1).second) {
        throw IoError(fmt::format("{}: tensor {} lies in two shards", folder.string(), tensor));
      }
    }
  }
}

const safetensors::TensorInfo& HfFolder::info(const std::string& name) const {
  return files_[file_of_.at(name)].tensors().at(name);
}

std::span<const std::byte> HfFolder::data(const std::string& name) const {
  return files_[file_of_.at(name)].data(name);
}

std::vector<std::string> HfFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

std::string LoadReport::problem() const {
  std::string text;
  if (!missing.empty())
    text += fmt::format("{} parameters are missing ({})", missing.size(), fmt::join(missing, ", "));
  if (!mismatched.empty()) {
    text += fmt::format("{}shapes differ ({})", text.empty() ? "" : "; ", fmt::join(mismatched, "; "));
  }
  return text;
}

HfFolderWriter::HfFolderWriter(std::filesystem::path folder, std::string config_json,
                               const std::vector<safetensors::TensorInfo>& infos)
    : folder_(created(folder)),
      config_json_(std::move(config_json)),
      weights_(folder_ / "model.safetensors", infos) {}

void HfFolderWriter::finish() {
  weights_.finish();
  std::ofstream out(folder_ / "config.json");
  out << config_json_;
  out.flush();
  if (!out) throw IoError(fmt::format("{}: cannot be written", (folder_ / "config.json").string()));
}

}  // namespace aliquot
