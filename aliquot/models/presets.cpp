#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "aliquot/error.h"
#include "aliquot/models/config.h"

namespace aliquot {
namespace {

struct Preset {
  const char* name;
  Family family;
  int64_t vocab_size, context, layers, hidden, heads, kv_heads, intermediate;
  int64_t bos, eos;
  double norm_eps = 1e-5, rope_theta = 10000.0;
  bool tied_head = false;
  double rope_factor = 0;  // of Llama 3.2's scaling; 0: none
};

// The shapes as published; -tiny and gpt2-small are ours, for tests and first steps.
constexpr std::array kPresets{
    Preset{"gpt2-tiny", Family::gpt2, 50257, 1024, 4, 128, 2, 2, 512, 50256, 50256, 1e-5, 0, true},
    Preset{"gpt2-small", Family::gpt2, 50257, 1024, 6, 384, 6, 6, 1536, 50256, 50256, 1e-5, 0, true},
    Preset{"gpt2-124m", Family::gpt2, 50257, 1024, 12, 768, 12, 12, 3072, 50256, 50256, 1e-5, 0, true},
    Preset{"gpt2-medium", Family::gpt2, 50257, 1024, 24, 1024, 16, 16, 4096, 50256, 50256, 1e-5, 0, true},
    Preset{"gpt2-large", Family::gpt2, 50257, 1024, 36, 1280, 20, 20, 5120, 50256, 50256, 1e-5, 0, true},
    Preset{"gpt2-xl", Family::gpt2, 50257, 1024, 48, 1600, 25, 25, 6400, 50256, 50256, 1e-5, 0, true},
    Preset{"llama-tiny", Family::llama, 32000, 2048, 4, 128, 4, 2, 344, 1, 2},
    Preset{"llama-1b", Family::llama, 32000, 2048, 22, 2048, 32, 4, 5632, 1, 2},
    Preset{"llama-7b", Family::llama, 32000, 4096, 32, 4096, 32, 32, 11008, 1, 2},
    Preset{"llama-13b", Family::llama, 32000, 4096, 40, 5120, 40, 40, 13824, 1, 2},
    Preset{"llama-70b", Family::llama, 32000, 4096, 80, 8192, 64, 8, 28672, 1, 2},
    Preset{"llama3-1b", Family::llama, 128256, 131072, 16, 2048, 32, 8, 8192, 128000, 128001, 1e-5, 5e5, true,
           32},
    Preset{"llama3-8b", Family::llama, 128256, 8192, 32, 4096, 32, 8, 14336, 128000, 128001, 1e-5, 5e5},
    Preset{"mistral-7b", Family::mistral, 32000, 32768, 32, 4096, 32, 8, 14336, 1, 2},
    Preset{"qwen2-0.5b", Family::qwen2, 151936, 131072, 24, 896, 14, 2, 4864, 151643, 151643, 1e-6, 1e6,
           true},
    Preset{"qwen2-7b", Family::qwen2, 152064, 131072, 28, 3584, 28, 4, 18944, 151643, 151643, 1e-6, 1e6},
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
  c.tied_head = p.tied_head;
  c.norm_eps = p.norm_eps;
  c.qkv_bias = p.family == Family::qwen2;
  c.rope_theta = p.rope_theta;
  if (p.rope_factor > 0) c.rope_scaling = RopeScaling{.factor = p.rope_factor};
  if (p.family == Family::mistral) c.sliding_window = 4096;
  c.bos_token_id = p.bos;
  c.eos_token_ids = {p.eos};
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig load_model_config(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name == p.name) return from_preset(p);
  }
  std::filesystem::path path(name);
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (folder) path /= "config.json";
  std::ifstream in(path);
  if (!in || !std::filesystem::is_regular_file(path, error)) {
    if (folder) throw ConfigError(fmt::format("{}: the folder has no config.json that can be read", name));
    throw ConfigError(
        fmt::format("model \"{}\" is neither a preset ({}) nor a Hugging Face folder or config.json", name,
                    fmt::join(preset_names(), ", ")));
  }
  std::stringstream text;
  text << in.rdbuf();
  return parse_model_config(text.str(), path.string());
}

}  // namespace aliquot
