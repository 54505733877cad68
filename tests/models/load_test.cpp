#include "aliquot/models/load.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "aliquot/error.h"
#include "aliquot/models/save.h"
#include "tests/checkpoint/scratch.h"
#include "tests/support/formula.h"

namespace aliquot::test {
namespace {

using safetensors::TensorInfo;

ModelConfig tiny(bool tied) {
  ModelConfig c;
  c.family = Family::llama;
  c.vocab_size = 24;
  c.context = 16;
  c.layers = 1;
  c.hidden = c.intermediate = 8;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 4;
  c.tied_head = tied;
  return c;
}

using Tensors = std::map<std::string, at::Tensor>;

Tensors tensors_of(LanguageModel& model) {
  Tensors out;
  for (const auto& item : model.named_parameters()) out[item.key()] = item.value().detach().clone();
  return out;
}

void write(const std::filesystem::path& folder, const ModelConfig& config, const Tensors& tensors) {
  const std::map<at::ScalarType, const char*> names{{at::kFloat, "F32"},
                                                    {at::kBFloat16, "BF16"},
                                                    {at::kHalf, "F16"},
                                                    {at::kDouble, "F64"},
                                                    {at::kLong, "I64"}};
  std::vector<TensorInfo> infos;
  for (const auto& [name, t] : tensors) infos.push_back({name, names.at(t.scalar_type()), t.sizes().vec()});
  HfFolderWriter writer(folder, to_hf_config(config), infos);
  for (const size_t i : safetensors::file_order(infos)) {
    const at::Tensor t = tensors.at(infos[i].name).contiguous();
    writer.write(infos[i].name, t.const_data_ptr(), t.nbytes());
  }
  writer.finish();
}

/// A folder with one model's weights changed by `change`, loaded into another model.
struct Case {
  explicit Case(
      bool tied, const std::function<void(Tensors&)>& change = [](Tensors&) {})
      : config(tiny(tied)) {
    Tensors tensors = tensors_of(*source);
    change(tensors);
    write(scratch.path(), config, tensors);
  }
  LoadReport load(const HfLoadOptions& options = {}) {
    return load_hf_weights(*model, scratch.path(), options);
  }
  std::string problem() {
    return message_of<IoError>([&] { load(); });
  }
  void expect_equal() {
    const Tensors a = tensors_of(*source), b = tensors_of(*model);
    for (const auto& [name, t] : a) EXPECT_TRUE(t.equal(b.at(name))) << name;
  }

  Scratch scratch;
  ModelConfig config;
  std::shared_ptr<LanguageModel> source = make_model(config, 1), model = make_model(config, 2);
};

TEST(LoadHfWeights, WhatWasWrittenComesBack) {
  for (const bool tied : {false, true}) {
    Case c(tied);
    const LoadReport report = c.load();
    EXPECT_EQ(report.loaded.size(), c.model->parameters().size());
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.mismatched.empty());
    c.expect_equal();
    const ModelConfig again = load_model_config(c.scratch.path().string());
    EXPECT_EQ(to_hf_config(again), to_hf_config(c.config));
  }
}

// A rank that does not write is asked for the same values, so that gathering them may be collective.
TEST(SaveHfWeights, EveryRankIsAskedInTheSameOrder) {
  for (const int64_t max_shard_bytes : {kMaxShardBytes, int64_t{600}}) {
    const Scratch scratch;
    const auto model = make_model(tiny(false), 1), again = make_model(tiny(false), 2);
    std::vector<std::string> writing, waiting;
    const auto asked = [&](std::vector<std::string>& names) {
      return [&](const std::string& name) {
        names.push_back(name);
        return model->named_parameters()[name];
      };
    };
    save_hf_weights(*model, scratch.path(), asked(writing), max_shard_bytes);
    save_hf_weights(*model, std::nullopt, asked(waiting), max_shard_bytes);
    EXPECT_EQ(writing, waiting);
    EXPECT_EQ(writing.size(), model->parameters().size());
    load_hf_weights(*again, scratch.path());
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().equal(again->named_parameters()[item.key()])) << item.key();
    }
  }
}

TEST(LoadHfWeights, OtherFloatingDtypesAreConverted) {
  for (const auto type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    Case c(false, [&](Tensors& t) { t["lm_head.weight"] = t["lm_head.weight"].to(type); });
    c.load();
    const at::Tensor expected = c.source->named_parameters()["lm_head.weight"].to(type).to(at::kFloat);
    EXPECT_TRUE(c.model->named_parameters()["lm_head.weight"].equal(expected));
  }
}

// One missing, one of another shape, one packed in three dimensions, one that the model does not have: each
// is named, and nothing keeps random values without a word.
TEST(LoadHfWeights, EveryDifferenceIsNamed) {
  Case c(false, [](Tensors& t) {
    t.erase("model.layers.0.self_attn.o_proj.weight");
    t["model.layers.0.mlp.down_proj.weight"] =
        t["model.layers.0.mlp.down_proj.weight"].view({2, 4, 8}).clone();
    t["model.norm.weight"] = at::zeros({0});
    t["model.layers.0.mlp.experts.weight"] = at::zeros({2, 3, 4});
  });
  const std::string problem = c.problem();
  expect_says(problem, c.scratch.path().string() +
                           ": 1 parameters are missing (model.layers.0.self_attn.o_proj.weight)");
  expect_says(problem, "not in the model: model.layers.0.mlp.experts.weight");
  expect_says(problem, "model.layers.0.mlp.down_proj.weight: file [2, 4, 8], model [8, 8]");
  expect_says(problem, "model.norm.weight: file [0], model [8]");
}

TEST(LoadHfWeights, MissingOnesKeepTheirValuesIfAllowed) {
  Case c(false, [](Tensors& t) {
    t.erase("lm_head.weight");
    t["score.weight"] = at::zeros({2, 8});
  });
  const at::Tensor head = c.model->named_parameters()["lm_head.weight"].detach().clone();
  expect_says(c.problem(), "1 parameters are missing (lm_head.weight)");
  const LoadReport report = c.load({.allow_missing = true});
  EXPECT_EQ(report.missing, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"score.weight"});
  EXPECT_EQ(report.loaded.size(), c.model->parameters().size() - 1);
  EXPECT_TRUE(c.model->named_parameters()["lm_head.weight"].equal(head));
}

TEST(LoadHfWeights, ATiedHeadInTheFileMustBeTheEmbedding) {
  Case same(true, [](Tensors& t) { t["lm_head.weight"] = t["model.embed_tokens.weight"]; });
  EXPECT_TRUE(same.load().unexpected.empty());
  same.expect_equal();
  Case alone(true, [](Tensors& t) {
    t["lm_head.weight"] = t["model.embed_tokens.weight"];
    t.erase("model.embed_tokens.weight");
  });
  alone.load();
  alone.expect_equal();
  Case other(true, [](Tensors& t) { t["lm_head.weight"] = t["model.embed_tokens.weight"].add(1); });
  expect_says(other.problem(),
              "lm_head.weight: differs from model.embed_tokens.weight, but config.json ties them");
}

TEST(LoadHfWeights, AModelSavedWithoutItsHead) {
  Case c(true, [](Tensors& t) {
    Tensors bare;
    for (const auto& [name, tensor] : t) bare[name.substr(std::string("model.").size())] = tensor;
    bare["layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({2});
    t = bare;
  });
  EXPECT_TRUE(c.load().unexpected.empty());
  c.expect_equal();
}

TEST(LoadHfWeights, IntegersAreNoWeights) {
  Case c(false, [](Tensors& t) { t["lm_head.weight"] = t["lm_head.weight"].to(at::kLong); });
  expect_says(c.problem(), "lm_head.weight: file I64, expected F32, BF16, F16 or F64");
}

// A file whose writer did not pad its header: the data lies at an odd address.
TEST(LoadHfWeights, UnalignedDataIsRead) {
  Case c(false);
  const auto path = c.scratch / "model.safetensors";
  std::string bytes = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes.insert(8 + header, 1, ' ');
  ++header;
  std::memcpy(bytes.data(), &header, 8);
  write_file(path, bytes);
  c.load();
  c.expect_equal();
}

}  // namespace
}  // namespace aliquot::test
