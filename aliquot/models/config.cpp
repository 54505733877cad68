#include "aliquot/models/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "aliquot/error.h"

namespace aliquot {
namespace {

using nlohmann::json;

/// What a family is called, and what transformers takes where its config.json says nothing.
struct FamilyFacts {
  Family family;
  const char* type;
  const char* architecture;
  int64_t context;
  int64_t kv_heads;  // 0: as many as heads
};
constexpr FamilyFacts kFamilies[] = {
    {Family::gpt2, "gpt2", "GPT2LMHeadModel", 1024, 0},
    {Family::llama, "llama", "LlamaForCausalLM", 2048, 0},
    {Family::mistral, "mistral", "MistralForCausalLM", 4096 * 32, 8},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 32768, 32},
};
const FamilyFacts& facts_of(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

/// Reads keys with errors that name the file and the key; null counts as absent unless `contains` is asked.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw ConfigError(fmt::format("{}: is not a JSON object", where_));
  }

  bool contains(const char* key) const { return object_.contains(key); }
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& at(const char* key) const { return object_[key]; }

  int64_t positive(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    if (!has(key)) {
      if (fallback) return *fallback;
      fail(key, "is missing");
    }
    const json& value = object_[key];
    constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
    if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 || value.get<uint64_t>() > kMost) {
      fail(key, fmt::format("is {}, expected a positive integer", value.dump()));
    }
    return value;
  }
  double number(const char* key, double fallback, double least, double most) const {
    if (!has(key)) return fallback;
    const json& value = object_[key];
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most)) {
      fail(key, std::isinf(most)
                    ? fmt::format("is {}, expected a number of at least {}", value.dump(), least)
                    : fmt::format("is {}, expected a number from {} to {}", value.dump(), least, most));
    }
    return value;
  }
  double probability(const char* key, double fallback) const { return number(key, fallback, 0, 1); }
  double at_least(const char* key, double fallback, double least) const {
    return number(key, fallback, least, std::numeric_limits<double>::infinity());
  }
  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_boolean())
      fail(key, fmt::format("is {}, expected true or false", object_[key].dump()));
    return object_[key];
  }
  std::string text(const char* key, const char* fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_string()) fail(key, fmt::format("is {}, expected a string", object_[key].dump()));
    return object_[key];
  }
  /// A token id, a list of them, or none.
  std::vector<int64_t> tokens(const char* key, std::vector<int64_t> fallback) const {
    if (!contains(key)) return fallback;
    if (!has(key)) return {};
    const json list = object_[key].is_array() ? object_[key] : json::array({object_[key]});
    std::vector<int64_t> ids;
    for (const json& id : list) {
      if (!id.is_number_integer())
        fail(key, fmt::format("is {}, expected a token's id", object_[key].dump()));
      ids.push_back(id);
    }
    return ids;
  }
  std::optional<int64_t> token(const char* key, std::optional<int64_t> fallback) const {
    const std::vector<int64_t> ids = tokens(key, fallback ? std::vector{*fallback} : std::vector<int64_t>{});
    return ids.empty() ? std::nullopt : std::optional(ids[0]);
  }

  void expect(const char* key, const std::string& got, std::initializer_list<const char*> known) const {
    for (const char* k : known) {
      if (got == k) return;
    }
    fail(key,
         fmt::format("is \"{}\", which is not supported; expected one of: {}", got, fmt::join(known, ", ")));
  }
  /// For switches that change the arithmetic in a way the model here does not have.
  void refuse(const char* key, bool on, std::string_view why) const {
    if (on) fail(key, fmt::format("is {}, which is not supported: {}", object_[key].dump(), why));
  }
  [[noreturn]] void fail(const char* key, std::string_view why) const {
    throw ConfigError(fmt::format("{}: {} {}", where_, key, why));
  }
  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
};

void read_gpt2(const Reader& r, ModelConfig& c) {
  c.context = r.positive("n_positions", facts_of(c.family).context);
  c.layers = r.positive("n_layer", 12);
  c.hidden = r.positive("n_embd", 768);
  c.heads = c.kv_heads = r.positive("n_head", 12);
  c.intermediate = r.positive("n_inner", 4 * c.hidden);
  c.tied_head = r.flag("tie_word_embeddings", true);
  c.norm_eps = r.number("layer_norm_epsilon", 1e-5, 0, 1);
  c.resid_dropout = r.probability("resid_pdrop", 0.1);
  c.embd_dropout = r.probability("embd_pdrop", 0.1);
  c.attn_dropout = r.probability("attn_pdrop", 0.1);
  c.bos_token_id = r.token("bos_token_id", 50256);
  c.eos_token_ids = r.tokens("eos_token_id", {50256});
  r.expect("activation_function", r.text("activation_function", "gelu_new"),
           {"gelu_new", "gelu_pytorch_tanh"});
  r.refuse("scale_attn_by_inverse_layer_idx", r.flag("scale_attn_by_inverse_layer_idx", false),
           "attention is scaled by 1/sqrt(head size) in every layer");
  r.refuse("reorder_and_upcast_attn", r.flag("reorder_and_upcast_attn", false),
           "attention runs in the model's dtype");
  r.refuse("add_cross_attention", r.flag("add_cross_attention", false), "models here are decoders alone");
  r.refuse("scale_attn_weights", !r.flag("scale_attn_weights", true),
           "attention is scaled by 1/sqrt(head size)");
  if (c.hidden % c.heads != 0) {
    r.fail("n_embd", fmt::format("is {}, expected a multiple of n_head, {}", c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
}

// As transformers 5 reads it: "rope_scaling", the older name, wins, and so does the older "type" inside.
void read_rope(const Reader& r, ModelConfig& c) {
  c.rope_theta = r.at_least("rope_theta", 10000.0, 1);
  r.refuse("partial_rotary_factor", r.number("partial_rotary_factor", 1, 0, 1) != 1,
           "all of a head is turned");
  const char* key =
      r.has("rope_scaling") && !r.at("rope_scaling").empty() ? "rope_scaling" : "rope_parameters";
  if (!r.has(key)) return;
  const Reader rope(r.at(key), r.where() + ": " + key);
  c.rope_theta = rope.at_least("rope_theta", c.rope_theta, 1);
  rope.refuse("partial_rotary_factor", rope.number("partial_rotary_factor", 1, 0, 1) != 1,
              "all of a head is turned");
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text(name, "default");
  rope.expect(name, type, {"default", "llama3"});
  if (type != "llama3") return;
  for (const char* needed : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!rope.has(needed)) rope.fail(needed, "is missing");
  }
  RopeScaling s;
  s.factor = rope.at_least("factor", s.factor, 1);
  s.low_freq_factor = rope.at_least("low_freq_factor", s.low_freq_factor, 0);
  s.high_freq_factor = rope.at_least("high_freq_factor", s.high_freq_factor, 0);
  s.original_max_position_embeddings = rope.positive("original_max_position_embeddings", c.context);
  if (s.low_freq_factor <= 0 || s.high_freq_factor <= s.low_freq_factor) {
    rope.fail("high_freq_factor",
              fmt::format("is {}, expected more than low_freq_factor, {}, which is more than 0",
                          s.high_freq_factor, s.low_freq_factor));
  }
  c.rope_scaling = s;
}

void read_heads(const Reader& r, ModelConfig& c) {
  const int64_t usual = facts_of(c.family).kv_heads;
  c.kv_heads =
      r.positive("num_key_value_heads", usual > 0 && !r.contains("num_key_value_heads") ? usual : c.heads);
  if (c.heads % c.kv_heads != 0) {
    r.fail("num_key_value_heads",
           fmt::format("is {}, expected a divisor of num_attention_heads, {}", c.kv_heads, c.heads));
  }
  if (!r.has("head_dim") && c.hidden % c.heads != 0) {
    r.fail("hidden_size",
           fmt::format("is {}, expected a multiple of num_attention_heads, {}", c.hidden, c.heads));
  }
  c.head_dim = r.positive("head_dim", c.hidden / c.heads);
  if (c.head_dim % 2 != 0) {
    r.fail("head_dim",
           fmt::format("is {}, expected an even number: rotary embedding turns pairs", c.head_dim));
  }
}

void read_llama(const Reader& r, ModelConfig& c) {
  c.context = r.positive("max_position_embeddings", facts_of(c.family).context);
  c.layers = r.positive("num_hidden_layers");
  c.hidden = r.positive("hidden_size");
  c.heads = r.positive("num_attention_heads");
  c.intermediate = r.positive("intermediate_size");
  c.tied_head = r.flag("tie_word_embeddings", false);
  c.norm_eps = r.number("rms_norm_eps", 1e-6, 0, 1);
  c.attn_dropout = r.probability("attention_dropout", 0.0);
  c.qkv_bias = c.family == Family::qwen2;
  c.pad_token_id = r.token("pad_token_id", std::nullopt);
  if (c.pad_token_id && (*c.pad_token_id < 0 || *c.pad_token_id >= c.vocab_size)) {
    r.fail("pad_token_id", fmt::format("is {}, expected null or a token of the vocabulary, {}",
                                       *c.pad_token_id, c.vocab_size));
  }
  const bool usual = c.family != Family::qwen2;
  c.bos_token_id = r.token("bos_token_id", usual ? std::optional<int64_t>(1) : std::nullopt);
  c.eos_token_ids = r.tokens("eos_token_id", usual ? std::vector<int64_t>{2} : std::vector<int64_t>{});
  r.expect("hidden_act", r.text("hidden_act", "silu"), {"silu"});
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    r.refuse(key, r.flag(key, false), "of these families Qwen2 alone has biases, and those of q, k and v");
  }
  r.refuse("use_sliding_window", c.family == Family::qwen2 && r.flag("use_sliding_window", false),
           "a window is the same for all layers here, as Mistral has it");
  if (c.family == Family::mistral) {
    // Absent means Mistral 7B's window, null none at all.
    if (!r.contains("sliding_window")) c.sliding_window = 4096;
    if (r.has("sliding_window")) c.sliding_window = r.positive("sliding_window");
  }
  read_heads(r, c);
  read_rope(r, c);
}

// Sizes that are each in range can still multiply to nonsense; 1e15 parameters are a thousand times today's
// largest.
void check_size(const ModelConfig& c, const std::string& file) {
  const double h = static_cast<double>(c.hidden);
  const double per_layer =
      h * (2.0 * static_cast<double>(c.heads + c.kv_heads) * static_cast<double>(c.head_dim) +
           3.0 * static_cast<double>(c.intermediate));
  const double all =
      static_cast<double>(c.layers) * per_layer + h * static_cast<double>(2 * c.vocab_size + c.context);
  if (all <= 1e15) return;
  throw ConfigError(
      fmt::format("{}: the sizes make {:.1e} parameters; one of them must be wrong", file, all));
}

json ids_json(std::vector<int64_t> ids, int64_t vocab_size) {
  std::erase_if(ids, [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? json(ids[0]) : json(ids);
}
json id_json(std::optional<int64_t> id, int64_t vocab_size) {
  return ids_json(id ? std::vector{*id} : std::vector<int64_t>{}, vocab_size);
}

void write_gpt2(const ModelConfig& c, json& o) {
  o["n_positions"] = c.context;
  o["n_layer"] = c.layers;
  o["n_embd"] = c.hidden;
  o["n_head"] = c.heads;
  o["n_inner"] = c.intermediate;
  o["layer_norm_epsilon"] = c.norm_eps;
  o["activation_function"] = "gelu_new";
  o["resid_pdrop"] = c.resid_dropout;
  o["embd_pdrop"] = c.embd_dropout;
  o["attn_pdrop"] = c.attn_dropout;
}

void write_llama(const ModelConfig& c, json& o) {
  o["max_position_embeddings"] = c.context;
  o["num_hidden_layers"] = c.layers;
  o["hidden_size"] = c.hidden;
  o["num_attention_heads"] = c.heads;
  o["num_key_value_heads"] = c.kv_heads;
  o["head_dim"] = c.head_dim;
  o["intermediate_size"] = c.intermediate;
  o["rms_norm_eps"] = c.norm_eps;
  o["hidden_act"] = "silu";
  o["attention_dropout"] = c.attn_dropout;
  o["pad_token_id"] = id_json(c.pad_token_id, c.vocab_size);
  if (c.family == Family::mistral)
    o["sliding_window"] = c.sliding_window ? json(*c.sliding_window) : json(nullptr);
  json rope{{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
  if (c.rope_scaling) {
    const RopeScaling& s = *c.rope_scaling;
    rope = {{"rope_type", "llama3"},
            {"rope_theta", c.rope_theta},
            {"factor", s.factor},
            {"low_freq_factor", s.low_freq_factor},
            {"high_freq_factor", s.high_freq_factor},
            {"original_max_position_embeddings", s.original_max_position_embeddings}};
    o["rope_scaling"] = rope;
  }
  o["rope_parameters"] = rope;
  // transformers before 5 reads these two names.
  o["rope_theta"] = c.rope_theta;
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& file) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Reader r(object, file);
  if (!r.has("model_type")) r.fail("model_type", "is missing");
  ModelConfig c;
  const std::string type = r.text("model_type", "");
  r.expect("model_type", type, {"gpt2", "llama", "mistral", "qwen2"});
  for (const FamilyFacts& f : kFamilies) {
    if (type == f.type) c.family = f.family;
  }
  r.refuse("quantization_config", r.has("quantization_config"), "weights are fp32, bf16 or fp16");
  c.vocab_size = r.positive("vocab_size");
  c.init_std = r.number("initializer_range", 0.02, 0, 1);
  if (c.family == Family::gpt2) {
    read_gpt2(r, c);
  } else {
    read_llama(r, c);
  }
  check_size(c, file);
  return c;
}

std::string to_hf_config(const ModelConfig& c) {
  json o{{"model_type", facts_of(c.family).type},
         {"architectures", {facts_of(c.family).architecture}},
         {"vocab_size", c.vocab_size},
         {"initializer_range", c.init_std},
         {"tie_word_embeddings", c.tied_head},
         {"bos_token_id", id_json(c.bos_token_id, c.vocab_size)},
         {"eos_token_id", ids_json(c.eos_token_ids, c.vocab_size)}};
  if (c.family == Family::gpt2) {
    write_gpt2(c, o);
  } else {
    write_llama(c, o);
  }
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
