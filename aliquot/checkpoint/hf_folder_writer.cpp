#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "aliquot/checkpoint/durable.h"
#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using safetensors::TensorInfo;

fs::path created(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(fmt::format("{}: cannot be created: {}", folder.string(), error.message()));
  return folder;
}

const char* torch_name(const std::string& dtype) {
  if (dtype == "F32") return "float32";
  if (dtype == "BF16") return "bfloat16";
  if (dtype == "F16") return "float16";
  return nullptr;
}

// The dtype of most elements: norms may be kept in fp32 inside a 16-bit model.
std::string with_dtype(const std::string& config_json, const std::vector<TensorInfo>& infos) {
  json config = json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  check(config.is_object(), "a model's config.json is a JSON object");
  std::map<std::string, int64_t> elements;
  for (const TensorInfo& info : infos) elements[info.dtype] += info.numel();
  int64_t most = -1;
  for (const auto& [dtype, n] : elements) {
    if (n <= most || torch_name(dtype) == nullptr) continue;
    most = n;
    config["dtype"] = torch_name(dtype);
  }
  return config.dump(2) + "\n";
}

// model-00001-of-00003.safetensors
bool is_shard(std::string_view name) {
  constexpr std::string_view kShape = "model-00000-of-00000.safetensors";
  return std::equal(name.begin(), name.end(), kShape.begin(), kShape.end(),
                    [](char c, char shape) { return shape == '0' ? c >= '0' && c <= '9' : c == shape; });
}

// What a reader might take for weights of this folder: of an older model, or of a run that was killed while
// writing.
bool is_weight_file(std::string_view name) {
  if (name.ends_with(".part")) name.remove_suffix(5);
  return name == "model.safetensors" || name == "model.safetensors.index.json" || is_shard(name);
}

}  // namespace

HfFolderWriter::HfFolderWriter(const fs::path& folder, const std::string& config_json,
                               const std::vector<TensorInfo>& infos, int64_t max_shard_bytes)
    : folder_(created(folder)), config_json_(with_dtype(config_json, infos)) {
  split(infos, max_shard_bytes);
  open_next();
}

void HfFolderWriter::split(const std::vector<TensorInfo>& infos, int64_t max_shard_bytes) {
  shards_.emplace_back();
  int64_t bytes = 0;
  for (const size_t i : safetensors::file_order(infos)) {
    if (bytes > 0 && bytes + infos[i].bytes() > max_shard_bytes) {
      shards_.emplace_back();
      bytes = 0;
    }
    shards_.back().infos.push_back(infos[i]);
    bytes += infos[i].bytes();
  }
  const size_t n = shards_.size();
  for (size_t i = 0; i < n; ++i) {
    shards_[i].file =
        n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
  }
}

void HfFolderWriter::open_next() {
  const Shard& shard = shards_[writers_.size()];
  writers_.emplace_back(folder_ / shard.file, shard.infos);
  written_ = 0;
}

void HfFolderWriter::write(const std::string& name, const void* data, size_t bytes) {
  if (written_ == shards_[writers_.size() - 1].infos.size()) {
    writers_.back().seal();
    check(writers_.size() < shards_.size(), "no tensor is written that was not announced");
    open_next();
  }
  writers_.back().write(name, data, bytes);
  ++written_;
}

std::string HfFolderWriter::index_json() const {
  int64_t total = 0;
  json map = json::object();
  for (const Shard& shard : shards_) {
    for (const TensorInfo& info : shard.infos) {
      total += info.bytes();
      map[info.name] = shard.file;
    }
  }
  return json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
}

void HfFolderWriter::remove_old() const {
  std::set<std::string> keep;
  for (const Shard& shard : shards_) keep.insert({shard.file, shard.file + ".part"});
  std::error_code error;
  std::vector<fs::path> old{folder_ / "config.json"};
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (is_weight_file(name) && !keep.contains(name)) old.push_back(it->path());
  }
  for (const fs::path& path : old) {
    if (!error) fs::remove(path, error);
  }
  if (error) {
    throw IoError(
        fmt::format("{}: an older model there cannot be replaced: {}", folder_.string(), error.message()));
  }
}

void HfFolderWriter::finish() {
  check(writers_.size() == shards_.size(), "every announced tensor is written");
  writers_.back().seal();
  remove_old();
  for (safetensors::Writer& writer : writers_) writer.publish();
  if (shards_.size() > 1) write_durably(folder_ / "model.safetensors.index.json", index_json());
  write_durably(folder_ / "config.json", config_json_);
}

}  // namespace aliquot
