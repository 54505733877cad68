#include "aliquot/models/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "aliquot/error.h"
#include "tests/checkpoint/scratch.h"

namespace aliquot::test {
namespace {

using nlohmann::json;

json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 64}, {"n_embd", 32}, {"n_head", 4}, {"n_layer", 2}};
}

json llama(const char* type = "llama") {
  return {{"model_type", type},      {"vocab_size", 64},         {"hidden_size", 32},
          {"num_hidden_layers", 2},  {"num_attention_heads", 4}, {"intermediate_size", 48},
          {"num_key_value_heads", 2}};
}

ModelConfig parse(const json& j) {
  return parse_model_config(j.dump(), "config.json");
}

json with(json base, const json& changes) {
  base.update(changes);
  return base;
}
json without(json base, const char* key) {
  base.erase(key);
  return base;
}

void expect_refused(const json& j, const std::string& part) {
  expect_says(message_of<ConfigError>([&] { (void)parse(j); }), part);
}

TEST(ModelConfig, SurvivesItsOwnConfigJson) {
  for (const std::string& name : preset_names()) {
    SCOPED_TRACE(name);
    const ModelConfig config = load_model_config(name);
    const std::string text = to_hf_config(config);
    const ModelConfig again = parse_model_config(text, "config.json");
    EXPECT_EQ(to_hf_config(again), text);
    EXPECT_EQ(parameter_count(again), parameter_count(config));
    EXPECT_EQ(again.qkv_bias, config.qkv_bias);
    EXPECT_EQ(again.rope_scaling.has_value(), config.rope_scaling.has_value());
    EXPECT_EQ(again.sliding_window, config.sliding_window);
  }
}

TEST(ModelConfig, PresetsHaveThePublishedSizes) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"gpt2-124m", 124'439'808},    {"gpt2-medium", 354'823'168},  {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},    {"llama-1b", 1'100'048'384},   {"llama-7b", 6'738'415'616},
      {"llama-13b", 13'015'864'320}, {"llama-70b", 68'976'648'192}, {"llama3-1b", 1'235'814'400},
      {"llama3-8b", 8'030'261'248},  {"mistral-7b", 7'241'732'096}, {"qwen2-0.5b", 494'032'768},
      {"qwen2-7b", 7'615'616'512}};
  for (const auto& [name, size] : sizes) EXPECT_EQ(parameter_count(load_model_config(name)), size) << name;
}

// What transformers takes for a key that is not there; null is another thing than absent.
TEST(ModelConfig, AbsentKeysMeanWhatTransformersTakes) {
  EXPECT_EQ(parse(gpt2()).intermediate, 4 * 32);
  EXPECT_EQ(parse(with(gpt2(), {{"n_inner", nullptr}})).intermediate, 4 * 32);
  EXPECT_EQ(parse(gpt2()).resid_dropout, 0.1);
  EXPECT_TRUE(parse(gpt2()).tied_head);
  EXPECT_FALSE(parse(llama()).tied_head);
  EXPECT_EQ(parse(llama()).context, 2048);
  EXPECT_EQ(parse(without(llama(), "num_key_value_heads")).kv_heads, 4);

  EXPECT_EQ(parse(llama("mistral")).context, 131072);
  EXPECT_EQ(parse(llama("mistral")).sliding_window, 4096);
  EXPECT_EQ(parse(with(llama("mistral"), {{"sliding_window", nullptr}})).sliding_window, std::nullopt);
  EXPECT_EQ(parse(with(llama("mistral"), {{"sliding_window", 4}})).sliding_window, 4);
  const json wide = with(llama("mistral"), {{"num_attention_heads", 16}});
  EXPECT_EQ(parse(without(wide, "num_key_value_heads")).kv_heads, 8);
  EXPECT_EQ(parse(with(wide, {{"num_key_value_heads", nullptr}})).kv_heads, 16);

  EXPECT_TRUE(parse(llama("qwen2")).qkv_bias);
  EXPECT_EQ(parse(with(llama("qwen2"), {{"sliding_window", 4}})).sliding_window, std::nullopt);
}

TEST(ModelConfig, RotaryKeysOfAllTimes) {
  EXPECT_EQ(parse(llama()).rope_theta, 10000.0);
  EXPECT_EQ(parse(with(llama(), {{"rope_theta", 5e5}})).rope_theta, 5e5);
  EXPECT_EQ(parse(with(llama(), {{"rope_parameters", {{"rope_theta", 1e6}}}})).rope_theta, 1e6);
  const json scaling{
      {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ModelConfig c =
        parse(with(llama(), {{key, scaling}, {"rope_theta", 5e5}, {"max_position_embeddings", 64}}));
    ASSERT_TRUE(c.rope_scaling);
    EXPECT_EQ(c.rope_theta, 5e5);
    EXPECT_EQ(c.rope_scaling->original_max_position_embeddings, 64);
  }
  // The name of before 4.43.
  expect_refused(with(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
                 "config.json: rope_scaling: type is \"linear\", which is not supported; expected one of: "
                 "default, llama3");
  expect_refused(with(llama(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}), "yarn");
  expect_refused(with(llama(), {{"rope_scaling", without(scaling, "factor")}}),
                 "rope_scaling: factor is missing");
  expect_refused(with(llama(), {{"rope_scaling", with(scaling, {{"high_freq_factor", 1.0}})}}),
                 "more than low_freq_factor");
  expect_refused(with(llama(), {{"rope_parameters", 3}}),
                 "config.json: rope_parameters: is not a JSON object");
  expect_refused(with(llama(), {{"partial_rotary_factor", 0.5}}), "all of a head is turned");
}

TEST(ModelConfig, TokensOfThePresetSurviveOnlyInsideTheVocabulary) {
  ModelConfig c = load_model_config("gpt2-tiny");
  EXPECT_EQ(json::parse(to_hf_config(c))["eos_token_id"], 50256);
  c.vocab_size = 257;
  EXPECT_TRUE(json::parse(to_hf_config(c))["eos_token_id"].is_null());
  c.eos_token_ids = {1, 256};
  EXPECT_EQ(json::parse(to_hf_config(c))["eos_token_id"], (json{1, 256}));
  EXPECT_EQ(parse(json::parse(to_hf_config(c))).eos_token_ids, c.eos_token_ids);
}

TEST(ModelConfig, WhatTheFamiliesDoNotHaveIsRefusedByName) {
  expect_refused(with(gpt2(), {{"model_type", "bert"}}),
                 "config.json: model_type is \"bert\", which is not supported; expected one of: gpt2, llama, "
                 "mistral, qwen2");
  expect_refused(without(gpt2(), "model_type"), "model_type is missing");
  expect_refused(json::array({1}), "config.json: is not a JSON object");
  EXPECT_THROW(parse_model_config("{", "config.json"), ConfigError);
  expect_refused(without(gpt2(), "vocab_size"), "vocab_size is missing");
  for (const json& bad : {json(-3), json(0), json(1.5), json("64"), json(1e12), json(4294967296)}) {
    expect_refused(with(gpt2(), {{"vocab_size", bad}}),
                   "vocab_size is " + bad.dump() + ", expected a positive integer");
  }
  expect_refused(with(gpt2(), {{"n_head", 3}}), "n_embd is 32, expected a multiple of n_head, 3");
  expect_refused(with(gpt2(), {{"activation_function", "relu"}}), "activation_function is \"relu\"");
  expect_refused(with(gpt2(), {{"resid_pdrop", 1.5}}), "resid_pdrop is 1.5, expected a number from 0 to 1");
  expect_refused(with(gpt2(), {{"tie_word_embeddings", "yes"}}),
                 "tie_word_embeddings is \"yes\", expected true or false");
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    expect_refused(with(gpt2(), {{key, true}}), std::string(key) + " is true, which is not supported: ");
  }
  expect_refused(with(gpt2(), {{"scale_attn_weights", false}}),
                 "scale_attn_weights is false, which is not supported: ");
  expect_refused(with(llama(), {{"num_key_value_heads", 3}}), "num_key_value_heads is 3, expected a divisor");
  expect_refused(with(llama(), {{"hidden_size", 34}}),
                 "hidden_size is 34, expected a multiple of num_attention_heads, 4");
  expect_refused(with(llama(), {{"head_dim", 7}}), "head_dim is 7, expected an even number");
  expect_refused(with(llama(), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"");
  expect_refused(with(llama(), {{"attention_bias", true}}), "attention_bias is true");
  expect_refused(with(llama(), {{"mlp_bias", true}}), "mlp_bias is true");
  expect_refused(with(llama(), {{"pad_token_id", -1}}), "pad_token_id is -1, expected null or a token");
  expect_refused(with(llama(), {{"eos_token_id", "</s>"}}),
                 "eos_token_id is \"</s>\", expected a token's id");
  expect_refused(with(llama("qwen2"), {{"use_sliding_window", true}}), "use_sliding_window is true");
  expect_refused(with(llama(), {{"quantization_config", {{"bits", 4}}}}), "weights are fp32, bf16 or fp16");
  expect_refused(with(llama(), {{"hidden_size", 2000000000}, {"num_hidden_layers", 2000000000}}),
                 "one of them must be wrong");
}

TEST(ModelConfig, FoldersAndNamesThatAreNoneAreSaid) {
  const Scratch scratch;
  const auto says = [](const std::string& name, const std::string& part) {
    expect_says(message_of<ConfigError>([&] { (void)load_model_config(name); }), part);
  };
  says("no-such-model", "model \"no-such-model\" is neither a preset (gpt2-tiny, ");
  says(scratch.path().string(), "has no config.json");
  write_file(scratch / "config.json", llama().dump());
  EXPECT_EQ(load_model_config(scratch.path().string()).hidden, 32);
  EXPECT_EQ(load_model_config((scratch / "config.json").string()).hidden, 32);
  write_file(scratch / "config.json", "{}");
  says(scratch.path().string(), (scratch / "config.json").string() + ": model_type is missing");
}

}  // namespace
}  // namespace aliquot::test
