// The shape of a language model: read from a Hugging Face config.json, or a preset. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aliquot {

enum class Family { gpt2, llama, mistral, qwen2 };

/// Llama 3's stretching of the rotary frequencies.
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  Family family = Family::gpt2;
  int64_t vocab_size = 50257;
  int64_t context = 1024;  ///< n_positions, max_position_embeddings
  int64_t layers = 12, hidden = 768, heads = 12;
  int64_t kv_heads = 12;  ///< fewer than heads: grouped-query attention
  int64_t head_dim = 64;
  int64_t intermediate = 3072;  ///< n_inner, intermediate_size
  bool tied_head = true;        ///< tie_word_embeddings
  double norm_eps = 1e-5;
  double init_std = 0.02;  ///< initializer_range
  /// Probabilities while training. The Llama families have attention's alone.
  double resid_dropout = 0.0, embd_dropout = 0.0, attn_dropout = 0.0;
  bool qkv_bias = false;  ///< Qwen2
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  std::optional<int64_t> sliding_window;  ///< Mistral: a position sees this many, itself included
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t>
      pad_token_id;  ///< in the Llama families, a token whose embedding is zero and not trained
  std::vector<int64_t> eos_token_ids;
};

/// Names of presets: a family's smallest first.
std::vector<std::string> preset_names();

/// `name`: a preset, a folder with a config.json, or a config.json. Throws ConfigError naming the file, the
/// key and what was expected, also for what these families do not have here.
///
/// A preset has no tokenizer: set vocab_size, and context if the sequences are longer, as the data wants
/// them.
ModelConfig load_model_config(const std::string& name);
ModelConfig parse_model_config(const std::string& text, const std::string& file);

/// The config.json that transformers reads. Token ids beyond the vocabulary are left out.
std::string to_hf_config(const ModelConfig& config);

/// Parameters of the model, a tied head counted once.
int64_t parameter_count(const ModelConfig& config);

}  // namespace aliquot
