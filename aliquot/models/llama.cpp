// The Llama family (Touvron et al. 2023) as transformers has it: Llama, Mistral (sliding window) and Qwen2
// (biased q, k, v). RMSNorm (Zhang & Sennrich 2019), rotary positions (Su et al. 2021), grouped-query
// attention (Ainslie et al. 2023), SwiGLU.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "aliquot/models/model.h"

namespace aliquot {
namespace {

struct Block {
  at::Tensor input_norm, post_norm;
  at::Tensor q, k, v, o, q_bias, k_bias, v_bias;
  at::Tensor gate, up, down;
};

struct Rotation {
  at::Tensor cos, sin;  // [positions, head_dim], computed in fp32, in the activations' dtype
};

// Frequencies of the rotary embedding, stretched as Llama 3 does: wavelengths beyond the original context are
// divided by `factor`, short ones kept, those between interpolated.
std::vector<float> frequencies(const ModelConfig& c) {
  std::vector<float> out;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(c.head_dim);
    float f = 1.0F / std::pow(static_cast<float>(c.rope_theta), exponent);
    if (c.rope_scaling) {
      const RopeScaling& s = *c.rope_scaling;
      const double context = static_cast<double>(s.original_max_position_embeddings);
      const double wavelength = 2 * std::numbers::pi / f;
      if (wavelength > context / s.low_freq_factor) {
        f = static_cast<float>(f / s.factor);
      } else if (wavelength >= context / s.high_freq_factor) {
        const double smooth =
            (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        f = static_cast<float>((1 - smooth) * f / s.factor + smooth * f);
      }
    }
    out.push_back(f);
  }
  return out;
}

at::Tensor rotate_half(const at::Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  return at::cat({x.slice(-1, half).neg(), x.slice(-1, 0, half)}, -1);
}

/// What all blocks of one forward share.
struct Call {
  Rotation rotation;
  std::optional<at::Tensor> mask;  // none: plain causal attention
  bool training;
};

class Llama final : public LanguageModel {
 public:
  Llama(const ModelConfig& config, Filling filling)
      : LanguageModel(config, filling), frequencies_(at::tensor(frequencies(config))) {
    const int64_t h = config_.hidden, q = config_.heads * config_.head_dim,
                  kv = config_.kv_heads * config_.head_dim;
    embed_ = add_parameter("model.embed_tokens.weight", {config_.vocab_size, h});
    for (int64_t l = 0; l < config_.layers; ++l) {
      const std::string name = fmt::format("model.layers.{}.", l);
      Block& b = blocks_.emplace_back();
      b.q = projection(name + "self_attn.q_proj", h, q, b.q_bias);
      b.k = projection(name + "self_attn.k_proj", h, kv, b.k_bias);
      b.v = projection(name + "self_attn.v_proj", h, kv, b.v_bias);
      b.o = add_parameter(name + "self_attn.o_proj.weight", {h, q});
      b.gate = add_parameter(name + "mlp.gate_proj.weight", {config_.intermediate, h});
      b.up = add_parameter(name + "mlp.up_proj.weight", {config_.intermediate, h});
      b.down = add_parameter(name + "mlp.down_proj.weight", {h, config_.intermediate});
      b.input_norm = add_parameter(name + "input_layernorm.weight", {h});
      b.post_norm = add_parameter(name + "post_attention_layernorm.weight", {h});
    }
    norm_ = add_parameter("model.norm.weight", {h});
    if (!config_.tied_head) head_ = add_parameter("lm_head.weight", {config_.vocab_size, h});
  }

  at::Tensor hidden_states(const at::Tensor& ids) override {
    check_positions(ids);
    const at::Tensor embedded = at::embedding(embed_, ids, config_.pad_token_id.value_or(-1));
    const Call call{rotation_of(embedded), window_mask(embedded), is_training()};
    const at::Tensor x = run_blocks(embedded, [this, call](const at::Tensor& in, int64_t l) {
      return block(blocks_[static_cast<size_t>(l)], in, call);
    });
    return rms_norm(x, norm_);
  }

  const at::Tensor& head_weight() const override { return config_.tied_head ? embed_ : head_; }

 private:
  at::Tensor projection(const std::string& name, int64_t in, int64_t out, at::Tensor& bias) {
    at::Tensor weight = add_parameter(name + ".weight", {out, in});
    if (config_.qkv_bias) bias = add_parameter(name + ".bias", {out});
    return weight;
  }

  // In fp32 inside, as transformers does.
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add(config_.norm_eps).rsqrt();
    return weight.mul(wide.mul(scale).to(x.scalar_type())).to(x.scalar_type());
  }

  Rotation rotation_of(const at::Tensor& x) const {
    const at::TensorOptions fp32 = x.options().dtype(at::kFloat);
    const at::Tensor angles = at::outer(at::arange(x.size(1), fp32), frequencies_.to(fp32.device()));
    const at::Tensor both = at::cat({angles, angles}, -1);
    return {both.cos().to(x.scalar_type()), both.sin().to(x.scalar_type())};
  }

  // None where plain causal attention is meant.
  std::optional<at::Tensor> window_mask(const at::Tensor& x) const {
    const int64_t positions = x.size(1);
    if (!config_.sliding_window || *config_.sliding_window >= positions) return std::nullopt;
    const at::Tensor all = at::ones({positions, positions}, x.options().dtype(at::kBool));
    return all.tril().logical_and(all.triu(1 - *config_.sliding_window));
  }

  at::Tensor split_heads(const at::Tensor& x, int64_t heads) const {
    return x.view({x.size(0), x.size(1), heads, config_.head_dim}).transpose(1, 2);
  }

  at::Tensor block(const Block& b, const at::Tensor& in, const Call& call) const {
    const at::Tensor x = in.add(attention(b, rms_norm(in, b.input_norm), call));
    const at::Tensor y = rms_norm(x, b.post_norm);
    return x.add(at::linear(at::silu(at::linear(y, b.gate)).mul(at::linear(y, b.up)), b.down));
  }

  at::Tensor attention(const Block& b, const at::Tensor& x, const Call& call) const {
    const Rotation& r = call.rotation;
    const auto turn = [&](const at::Tensor& y) { return y.mul(r.cos).add(rotate_half(y).mul(r.sin)); };
    const at::Tensor q = turn(split_heads(at::linear(x, b.q, bias(b.q_bias)), config_.heads));
    const at::Tensor k = turn(split_heads(at::linear(x, b.k, bias(b.k_bias)), config_.kv_heads));
    const at::Tensor v = split_heads(at::linear(x, b.v, bias(b.v_bias)), config_.kv_heads);
    const double p = call.training ? config_.attn_dropout : 0.0;
    const bool grouped = config_.kv_heads < config_.heads;
    const at::Tensor mixed = at::scaled_dot_product_attention(q, k, v, call.mask, p, /*is_causal=*/!call.mask,
                                                              /*scale=*/std::nullopt, grouped);
    return at::linear(mixed.transpose(1, 2).flatten(2), b.o);
  }

  static std::optional<at::Tensor> bias(const at::Tensor& b) {
    return b.defined() ? std::optional(b) : std::nullopt;
  }

  at::Tensor frequencies_;
  at::Tensor embed_, norm_, head_;
  std::vector<Block> blocks_;
};

}  // namespace

std::shared_ptr<LanguageModel> make_llama(const ModelConfig& config, Filling filling) {
  return std::make_shared<Llama>(config, filling);
}

}  // namespace aliquot
