#include "aliquot/models/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "aliquot/error.h"

namespace aliquot {
namespace {

using nlohmann::json;

struct Preset {
  const char* name;
  Family family;
  int64_t vocab_size, context, layers, hidden, heads, kv_heads, intermediate;
};

constexpr std::array kPresets{
    Preset{"gpt2-tiny", Family::gpt2, 50257, 1024, 4, 128, 2, 2, 512},
    Preset{"gpt2-small", Family::gpt2, 50257, 1024, 6, 384, 6, 6, 1536},
    Preset{"gpt2-124m", Family::gpt2, 50257, 1024, 12, 768, 12, 12, 3072},
    Preset{"gpt2-medium", Family::gpt2, 50257, 1024, 24, 1024, 16, 16, 4096},
    Preset{"gpt2-large", Family::gpt2, 50257, 1024, 36, 1280, 20, 20, 5120},
    Preset{"gpt2-xl", Family::gpt2, 50257, 1024, 48, 1600, 25, 25, 6400},
    Preset{"llama-tiny", Family::llama, 32000, 2048, 4, 128, 4, 2, 344},
    Preset{"llama-1b", Family::llama, 32000, 2048, 22, 2048, 32, 4, 5632},
    Preset{"llama-7b", Family::llama, 32000, 4096, 32, 4096, 32, 32, 11008},
};

ModelConfig from_preset(const Preset& p) {
  ModelConfig c;
  c.family = p.family;
  c.vocab_size = p.vocab_size;
  c.context = p.context;
  c.layers = p.layers;
  c.hidden = p.hidden;
  c.heads = p.heads;
  c.kv_heads = p.kv_heads;
  c.head_dim = p.hidden / p.heads;
  c.intermediate = p.intermediate;
  c.tied_head = p.family == Family::gpt2;
  if (p.family != Family::gpt2) c.norm_eps = 1e-6;
  return c;
}

/// Reads keys with errors that name the file and the key; null counts as absent.
class Reader {
 public:
  Reader(const json& object, std::string file) : object_(object), file_(std::move(file)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  int64_t positive(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    if (!has(key)) {
      if (fallback) return *fallback;
      fail(key, "is missing");
    }
    if (!object_[key].is_number_integer() || object_[key].get<int64_t>() <= 0)
      fail(key, "must be a positive integer");
    return object_[key];
  }
  int64_t integer(const char* key, int64_t fallback) const {
    return has(key) && object_[key].is_number_integer() ? object_[key].get<int64_t>() : fallback;
  }
  double number(const char* key, double fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_number()) fail(key, "must be a number");
    return object_[key];
  }
  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_boolean()) fail(key, "must be true or false");
    return object_[key];
  }
  std::string text(const char* key, const char* fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_string()) fail(key, "must be a string");
    return object_[key];
  }
  void expect(const char* key, const std::string& got, std::initializer_list<const char*> known) const {
    for (const char* k : known) {
      if (got == k) return;
    }
    fail(key,
         fmt::format("is \"{}\", which is not supported; expected one of: {}", got, fmt::join(known, ", ")));
  }
  [[noreturn]] void fail(const char* key, std::string_view why) const {
    throw ConfigError(fmt::format("{}: {} {}", file_, key, why));
  }
  const json& at(const char* key) const { return object_[key]; }

 private:
  const json& object_;
  std::string file_;
};

void read_gpt2(const Reader& r, ModelConfig& c) {
  c.context = r.positive("n_positions", 1024);
  c.layers = r.positive("n_layer", 12);
  c.hidden = r.positive("n_embd", 768);
  c.heads = c.kv_heads = r.positive("n_head", 12);
  c.intermediate = r.positive("n_inner", 4 * c.hidden);
  c.tied_head = r.flag("tie_word_embeddings", true);
  c.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  r.expect("activation_function", r.text("activation_function", "gelu_new"),
           {"gelu_new", "gelu_pytorch_tanh"});
  if (r.flag("scale_attn_by_inverse_layer_idx", false))
    r.fail("scale_attn_by_inverse_layer_idx", "is not supported");
  if (r.flag("add_cross_attention", false)) r.fail("add_cross_attention", "is not supported");
  if (!r.flag("scale_attn_weights", true)) r.fail("scale_attn_weights", "must be true");
  c.dropout = r.number("resid_pdrop", 0.1);
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
    if (r.number(key, 0.1) != c.dropout) r.fail(key, "must equal resid_pdrop");
  }
  if (c.hidden % c.heads != 0) r.fail("n_embd", "must be a multiple of n_head");
  c.head_dim = c.hidden / c.heads;
}

void read_rope(const Reader& r, ModelConfig& c, const std::string& file) {
  c.rope_theta = r.number("rope_theta", 10000.0);
  const char* key = r.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!r.has(key)) return;
  const Reader rope(r.at(key), file + ": " + key);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  const std::string type = rope.text("rope_type", "default");
  rope.expect("rope_type", type, {"default", "llama3"});
  if (type != "llama3") return;
  c.rope_scaling =
      RopeScaling{rope.number("factor", 8), rope.number("low_freq_factor", 1),
                  rope.number("high_freq_factor", 4), rope.positive("original_max_position_embeddings")};
}

void read_llama(const Reader& r, ModelConfig& c, const std::string& file) {
  c.context = r.positive("max_position_embeddings", 2048);
  c.layers = r.positive("num_hidden_layers");
  c.hidden = r.positive("hidden_size");
  c.heads = r.positive("num_attention_heads");
  c.kv_heads = r.positive("num_key_value_heads", c.heads);
  c.head_dim = r.positive("head_dim", c.hidden / c.heads);
  c.intermediate = r.positive("intermediate_size");
  c.tied_head = r.flag("tie_word_embeddings", false);
  c.norm_eps = r.number("rms_norm_eps", 1e-6);
  c.qkv_bias = c.family == Family::qwen2;
  r.expect("hidden_act", r.text("hidden_act", "silu"), {"silu"});
  if (c.heads % c.kv_heads != 0) r.fail("num_key_value_heads", "must divide num_attention_heads");
  if (c.head_dim % 2 != 0) r.fail("head_dim", "must be even: rotary embedding turns pairs");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (r.flag(key, false)) r.fail(key, "is not supported");
  }
  if (r.number("attention_dropout", 0.0) != 0) r.fail("attention_dropout", "is not supported in this family");
  if (c.family == Family::qwen2 && r.flag("use_sliding_window", false))
    r.fail("use_sliding_window", "is not supported");
  if (c.family == Family::mistral && r.has("sliding_window")) c.sliding_window = r.positive("sliding_window");
  read_rope(r, c, file);
}

const char* type_name(Family family) {
  switch (family) {
    case Family::gpt2:
      return "gpt2";
    case Family::llama:
      return "llama";
    case Family::mistral:
      return "mistral";
    case Family::qwen2:
      return "qwen2";
  }
  return "?";
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig parse_model_config(const std::string& text, const std::string& file) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw ConfigError(fmt::format("{}: is not a JSON object", file));
  const Reader r(object, file);
  ModelConfig c;
  const std::string type = r.text("model_type", "");
  r.expect("model_type", type, {"gpt2", "llama", "mistral", "qwen2"});
  for (const Family family : {Family::gpt2, Family::llama, Family::mistral, Family::qwen2}) {
    if (type == type_name(family)) c.family = family;
  }
  c.vocab_size = r.positive("vocab_size");
  c.init_std = r.number("initializer_range", 0.02);
  c.bos_token_id = r.integer("bos_token_id", -1);
  c.eos_token_id = r.integer("eos_token_id", -1);
  if (c.family == Family::gpt2) {
    read_gpt2(r, c);
  } else {
    read_llama(r, c, file);
  }
  return c;
}

ModelConfig load_model_config(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name == p.name) return from_preset(p);
  }
  std::filesystem::path path(name);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  std::ifstream in(path);
  if (!in || !std::filesystem::is_regular_file(path, error)) {
    throw ConfigError(
        fmt::format("model \"{}\" is neither a preset ({}) nor a Hugging Face folder or config.json", name,
                    fmt::join(preset_names(), ", ")));
  }
  std::stringstream text;
  text << in.rdbuf();
  return parse_model_config(text.str(), path.string());
}

std::string to_hf_config(const ModelConfig& c) {
  json o{{"model_type", type_name(c.family)},
         {"vocab_size", c.vocab_size},
         {"initializer_range", c.init_std},
         {"tie_word_embeddings", c.tied_head}};
  if (c.bos_token_id >= 0) o["bos_token_id"] = c.bos_token_id;
  if (c.eos_token_id >= 0) o["eos_token_id"] = c.eos_token_id;
  if (c.family == Family::gpt2) {
    o["architectures"] = {"GPT2LMHeadModel"};
    o["n_positions"] = c.context;
    o["n_layer"] = c.layers;
    o["n_embd"] = c.hidden;
    o["n_head"] = c.heads;
    o["n_inner"] = c.intermediate;
    o["layer_norm_epsilon"] = c.norm_eps;
    o["activation_function"] = "gelu_new";
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) o[key] = c.dropout;
    return o.dump(2) + "\n";
  }
  o["architectures"] = {c.family == Family::llama     ? "LlamaForCausalLM"
                        : c.family == Family::mistral ? "MistralForCausalLM"
                                                      : "Qwen2ForCausalLM"};
  o["max_position_embeddings"] = c.context;
  o["num_hidden_layers"] = c.layers;
  o["hidden_size"] = c.hidden;
  o["num_attention_heads"] = c.heads;
  o["num_key_value_heads"] = c.kv_heads;
  o["head_dim"] = c.head_dim;
  o["intermediate_size"] = c.intermediate;
  o["rms_norm_eps"] = c.norm_eps;
  o["hidden_act"] = "silu";
  o["rope_theta"] = c.rope_theta;
  if (c.family == Family::mistral)
    o["sliding_window"] = c.sliding_window ? json(*c.sliding_window) : json(nullptr);
  json rope{{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
  if (c.rope_scaling) {
    rope = {{"rope_type", "llama3"},
            {"rope_theta", c.rope_theta},
            {"factor", c.rope_scaling->factor},
            {"low_freq_factor", c.rope_scaling->low_freq_factor},
            {"high_freq_factor", c.rope_scaling->high_freq_factor},
            {"original_max_position_embeddings", c.rope_scaling->original_max_position_embeddings}};
  }
  o["rope_parameters"] = rope;
  return o.dump(2) + "\n";
}

int64_t parameter_count(const ModelConfig& c) {
  const int64_t embedding = c.vocab_size * c.hidden;
  const int64_t head = c.tied_head ? 0 : embedding;
  if (c.family == Family::gpt2) {
    const int64_t attention = 4 * c.hidden * c.hidden + 4 * c.hidden;
    const int64_t mlp = 2 * c.hidden * c.intermediate + c.intermediate + c.hidden;
    return embedding + head + c.context * c.hidden + c.layers * (attention + mlp + 4 * c.hidden) +
           2 * c.hidden;
  }
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const int64_t attention = c.hidden * (2 * q + 2 * kv) + (c.qkv_bias ? q + 2 * kv : 0);
  return embedding + head + c.layers * (attention + 3 * c.hidden * c.intermediate + 2 * c.hidden) + c.hidden;
}

}  // namespace aliquot
