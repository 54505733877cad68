#include "aliquot/checkpoint/hf_folder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <vector>

#include "aliquot/error.h"
#include "tests/checkpoint/scratch.h"

namespace aliquot::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using safetensors::TensorInfo;

const std::vector<TensorInfo> kInfos{{"layers.0.w", "F32", {4, 4}},
                                     {"layers.1.w", "F32", {4, 4}},
                                     {"embed", "F32", {32, 4}},
                                     {"norm", "F32", {4}}};

std::vector<float> values(const TensorInfo& info, float from) {
  std::vector<float> v(static_cast<size_t>(info.numel()));
  std::iota(v.begin(), v.end(), from);
  return v;
}

void write(const fs::path& folder, int64_t max_shard_bytes, float from = 1) {
  HfFolderWriter writer(folder, R"({"model_type": "llama"})", kInfos, max_shard_bytes);
  for (const size_t i : safetensors::file_order(kInfos)) {
    const auto v = values(kInfos[i], from);
    writer.write(kInfos[i].name, v.data(), v.size() * sizeof(float));
  }
  writer.finish();
}

void expect_holds(const fs::path& path, float from = 1) {
  const HfFolder folder(path);
  EXPECT_EQ(folder.names().size(), kInfos.size());
  for (const TensorInfo& info : kInfos) {
    const auto v = values(info, from);
    EXPECT_EQ(folder.info(info.name).shape, info.shape);
    ASSERT_EQ(folder.data(info.name).size(), v.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(folder.data(info.name).data(), v.data(), v.size() * sizeof(float)), 0) << info.name;
  }
}

std::set<std::string> files_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string problem(const fs::path& folder) {
  return message_of<IoError>([&] { const HfFolder f(folder); });
}

TEST(HfFolder, OneFile) {
  const Scratch scratch;
  write(scratch.path(), kMaxShardBytes);
  EXPECT_EQ(files_of(scratch.path()), (std::set<std::string>{"config.json", "model.safetensors"}));
  expect_holds(scratch.path());
  const json config = json::parse(read_file(scratch / "config.json"));
  EXPECT_EQ(config, (json{{"model_type", "llama"}, {"dtype", "float32"}}));
}

TEST(HfFolder, ShardsOfTheSizeAsked) {
  const Scratch scratch;
  // embed has 512 bytes and gets a file of its own.
  write(scratch.path(), 144);
  EXPECT_EQ(files_of(scratch.path()),
            (std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"}));
  expect_holds(scratch.path());
  const json index = json::parse(read_file(scratch / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 512 + 64 + 64 + 16);
  EXPECT_EQ(index["weight_map"]["embed"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["norm"], "model-00002-of-00002.safetensors");
}

// Readers prefer model.safetensors, so one that is left over would hide the shards beside it.
TEST(HfFolder, ANewModelReplacesAnOldOneOfOtherFiles) {
  const Scratch scratch;
  write_file(scratch / "tokenizer.json", "{}");
  write_file(scratch / "model-best.safetensors", "someone's own");
  const int64_t sizes[] = {kMaxShardBytes, 144, 16, 144, kMaxShardBytes};
  float from = 1;
  for (const int64_t size : sizes) {
    write(scratch.path(), size, from);
    expect_holds(scratch.path(), from);
    from += 1;
  }
  EXPECT_EQ(files_of(scratch.path()), (std::set<std::string>{"config.json", "model-best.safetensors",
                                                             "model.safetensors", "tokenizer.json"}));
}

TEST(HfFolder, AWriterThatIsGivenUpLeavesTheOldModel) {
  const Scratch scratch;
  write(scratch.path(), kMaxShardBytes);
  const auto before = files_of(scratch.path());
  for (const int64_t size : {kMaxShardBytes, int64_t{144}}) {
    HfFolderWriter writer(scratch.path(), "{}", kInfos, size);
    const auto v = values(kInfos[2], 9);
    writer.write("embed", v.data(), v.size() * sizeof(float));
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_EQ(files_of(scratch.path()), before);
  expect_holds(scratch.path());
}

TEST(HfFolder, DtypeOfTheWeightsIsInTheConfig) {
  const Scratch scratch;
  const std::vector<TensorInfo> infos{{"w", "BF16", {8}}, {"norm", "F32", {4}}};
  HfFolderWriter writer(scratch.path(), "{}", infos);
  const std::vector<float> zeros(4);
  writer.write("norm", zeros.data(), 16);
  writer.write("w", zeros.data(), 16);
  writer.finish();
  EXPECT_EQ(json::parse(read_file(scratch / "config.json"))["dtype"], "bfloat16");
}

TEST(HfFolder, AFolderThatCannotBeMadeIsNamed) {
  const Scratch scratch;
  write_file(scratch / "taken", "");
  expect_says(message_of<IoError>([&] { HfFolderWriter(scratch / "taken", "{}", kInfos); }),
              (scratch / "taken").string() + ": cannot be created");
}

TEST(HfFolder, MissingAndDamagedPartsAreNamed) {
  const Scratch scratch;
  expect_says(problem(scratch.path()), "has neither model.safetensors nor model.safetensors.index.json");
  write_file(scratch / "pytorch_model.bin", "");
  expect_says(problem(scratch.path()), "pytorch_model.bin, which is not read");

  write(scratch.path(), 144);
  const HfFolder folder(scratch.path());
  expect_says(message_of<IoError>([&] { (void)folder.info("head"); }),
              scratch.path().string() + ": has no tensor head");
  expect_says(message_of<IoError>([&] { (void)folder.data("head"); }), "has no tensor head");

  const std::string second = "model-00002-of-00002.safetensors";
  const std::string whole = read_file(scratch / second);
  write_file(scratch / second, whole.substr(0, whole.size() - 1));
  expect_says(problem(scratch.path()), second + ": is truncated: tensor norm");
  fs::remove(scratch / second);
  expect_says(problem(scratch.path()), second + ": cannot be opened");

  const auto index_says = [&](const std::string& text, const std::string& part) {
    write_file(scratch / "model.safetensors.index.json", text);
    expect_says(problem(scratch.path()), part);
  };
  const std::string first = "model-00001-of-00002.safetensors";
  index_says("{", "expected a JSON object with \"weight_map\"");
  index_says(R"({"weight_map": 3})", "expected a JSON object with \"weight_map\"");
  index_says(R"({"weight_map": {"embed": 3}})", "weight_map.embed must name a file of the folder");
  index_says(R"({"weight_map": {"embed": "../)" + first + "\"}}",
             "weight_map.embed must name a file of the folder");
  index_says(R"({"weight_map": {"ghost": ")" + first + "\"}}", first + ": lacks tensor ghost");
}

}  // namespace
}  // namespace aliquot::test
