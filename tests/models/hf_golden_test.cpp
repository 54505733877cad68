// Every record of golden/hf.json: folders that transformers wrote give its logits, loss and gradient norms
// here.
#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "aliquot/error.h"
#include "aliquot/models/load.h"
#include "aliquot/models/model.h"

namespace aliquot::test {
namespace {

using nlohmann::json;

std::string data(const std::string& path) {
  return std::string(ALIQUOT_TEST_DATA) + "/" + path;
}

at::Tensor ids_of(const json& record) {
  std::vector<int64_t> flat;
  for (const json& row : record["ids"]) {
    for (const json& id : row) flat.push_back(id);
  }
  return at::tensor(flat).view({static_cast<int64_t>(record["ids"].size()), -1});
}

void check_record(const json& record) {
  const std::string folder = data(record["folder"]);
  const auto model = make_model(load_model_config(folder), 1);
  const LoadReport report = load_hf_weights(*model, folder);
  EXPECT_TRUE(report.unexpected.empty());
  EXPECT_EQ(parameter_count(model->config()), [&] {
    int64_t n = 0;
    for (const at::Tensor& p : model->parameters()) n += p.numel();
    return n;
  }());
  model->eval();

  const at::Tensor ids = ids_of(record);
  const at::Tensor logits = model->logits(ids).detach();
  for (int64_t t = 0; t < 8; ++t) {
    for (int64_t v = 0; v < 16; ++v) {
      ASSERT_NEAR(logits[0][t][v].item<double>(),
                  record["logits_first_row"][static_cast<size_t>(t)][static_cast<size_t>(v)], 5e-6)
          << t << " " << v;
    }
  }
  EXPECT_NEAR(logits.to(at::kDouble).sum().item<double>(), record["logits_sum"],
              5e-6 * static_cast<double>(logits.numel()));

  // Labels are the ids themselves; each position predicts the next one, the last nothing.
  at::Tensor targets = at::full_like(ids, -100);
  targets.slice(1, 0, ids.size(1) - 1).copy_(ids.slice(1, 1));
  const at::Tensor loss = model->loss(ids, targets);
  EXPECT_NEAR(loss.item<double>(), record["loss"].get<double>(), 1e-5 * record["loss"].get<double>());
  loss.backward();
  for (const auto& item : model->named_parameters()) {
    const double expected = record["gradient_norms"].at(item.key());
    const double norm = item.value().grad().to(at::kDouble).norm().item<double>();
    // A key bias has no gradient but rounding noise.
    EXPECT_NEAR(norm, expected, 1e-5 * std::max(expected, 0.05)) << item.key();
  }
}

TEST(HfGolden, FoldersOfTransformers) {
  at::set_num_threads(1);
  const json records = json::parse(std::ifstream(data("hf.json")))["records"];
  for (const json& record : records) {
    SCOPED_TRACE(record["id"].get<std::string>());
    check_record(record);
  }
}

TEST(ModelConfig, SurvivesItsOwnConfigJson) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = load_model_config(name);
    const ModelConfig again = parse_model_config(to_hf_config(config), "config.json");
    EXPECT_EQ(parameter_count(again), parameter_count(config)) << name;
    EXPECT_EQ(again.norm_eps, config.norm_eps) << name;
    EXPECT_EQ(again.head_dim, config.head_dim) << name;
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(load_model_config("llama-7b"))), 6.74e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(load_model_config("gpt2-124m"))), 124.4e6, 0.1e6);
}

TEST(ModelConfig, RefusesWhatTheFamiliesDoNotHave) {
  const auto message = [](const char* text) {
    try {
      (void)parse_model_config(text, "config.json");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message("{\"model_type\": \"bert\"}").find("config.json: model_type is \"bert\""),
            std::string::npos);
  EXPECT_NE(message("[1]").find("is not a JSON object"), std::string::npos);
  EXPECT_NE(message("{\"model_type\": \"gpt2\"}").find("vocab_size is missing"), std::string::npos);
  EXPECT_NE(message("{\"model_type\": \"gpt2\", \"vocab_size\": -3}").find("positive integer"),
            std::string::npos);
  EXPECT_NE(message("{\"model_type\": \"gpt2\", \"vocab_size\": 8, \"n_embd\": 10, \"n_head\": 3}")
                .find("multiple of n_head"),
            std::string::npos);
  EXPECT_NE(
      message("{\"model_type\": \"llama\", \"vocab_size\": 8, \"num_hidden_layers\": 1, \"hidden_size\": 8, "
              "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"rope_scaling\": {\"rope_type\": "
              "\"yarn\"}}")
          .find("yarn"),
      std::string::npos);
  EXPECT_THROW(load_model_config("no-such-model"), ConfigError);
}

TEST(Model, InitialValuesDependOnSeedAndNameAlone) {
  ModelConfig config = load_model_config("gpt2-tiny");
  config.vocab_size = 64;
  const auto a = make_model(config, 7), b = make_model(config, 7), c = make_model(config, 8);
  config.layers = 2;
  const auto shallow = make_model(config, 7);
  const auto weight = [](LanguageModel& m) {
    return m.named_parameters()["transformer.h.1.mlp.c_fc.weight"];
  };
  EXPECT_TRUE(weight(*a).equal(weight(*b)));
  EXPECT_FALSE(weight(*a).equal(weight(*c)));
  EXPECT_TRUE(weight(*a).equal(weight(*shallow)));
  EXPECT_NEAR(weight(*a).std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(a->named_parameters()["transformer.h.1.mlp.c_proj.weight"].std().item<double>(),
              0.02 / std::sqrt(8.0), 0.001);
}

TEST(Model, TooManyPositionsAreAnError) {
  ModelConfig config = load_model_config("gpt2-tiny");
  config.vocab_size = 8;
  config.context = 4;
  const auto model = make_model(config, 1);
  EXPECT_THROW(model->logits(at::zeros({1, 5}, at::kLong)), UsageError);
}

}  // namespace
}  // namespace aliquot::test
