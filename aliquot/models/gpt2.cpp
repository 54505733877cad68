// GPT-2 (Radford et al. 2019) as transformers' GPT2LMHeadModel: learned positions, pre-norm blocks, linear
// maps stored [in, out].
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <vector>

#include "aliquot/models/model.h"

namespace aliquot {
namespace {

struct Affine {
  at::Tensor weight, bias;
};

struct Block {
  Affine ln_1, c_attn, attn_proj, ln_2, c_fc, mlp_proj;
};

class Gpt2 final : public LanguageModel {
 public:
  Gpt2(const ModelConfig& config, Filling filling) : LanguageModel(config, filling) {
    const int64_t h = config_.hidden;
    wte_ = add_parameter("transformer.wte.weight", {config_.vocab_size, h});
    wpe_ = add_parameter("transformer.wpe.weight", {config_.context, h});
    for (int64_t l = 0; l < config_.layers; ++l) {
      const std::string name = fmt::format("transformer.h.{}.", l);
      Block& b = blocks_.emplace_back();
      b.ln_1 = norm(name + "ln_1");
      b.c_attn = linear(name + "attn.c_attn", h, 3 * h);
      b.attn_proj = linear(name + "attn.c_proj", h, h);
      b.ln_2 = norm(name + "ln_2");
      b.c_fc = linear(name + "mlp.c_fc", h, config_.intermediate);
      b.mlp_proj = linear(name + "mlp.c_proj", config_.intermediate, h);
    }
    ln_f_ = norm("transformer.ln_f");
    if (!config_.tied_head) head_ = add_parameter("lm_head.weight", {config_.vocab_size, h});
  }

  at::Tensor hidden_states(const at::Tensor& ids) override {
    check_positions(ids);
    const at::Tensor positions = at::arange(ids.size(1), ids.options());
    const at::Tensor embedded = at::embedding(wte_, ids).add(at::embedding(wpe_, positions));
    const bool training = is_training();
    const at::Tensor x = run_blocks(drop(embedded, config_.embd_dropout, training),
                                    [this, training](const at::Tensor& in, int64_t l) {
                                      return block(blocks_[static_cast<size_t>(l)], in, training);
                                    });
    return apply_norm(ln_f_, x);
  }

  const at::Tensor& head_weight() const override { return config_.tied_head ? wte_ : head_; }

 private:
  Affine norm(const std::string& name) {
    return {add_parameter(name + ".weight", {config_.hidden}),
            add_parameter(name + ".bias", {config_.hidden})};
  }
  Affine linear(const std::string& name, int64_t in, int64_t out) {
    return {add_parameter(name + ".weight", {in, out}), add_parameter(name + ".bias", {out})};
  }
  at::Tensor apply(const Affine& a, const at::Tensor& x) const {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = a.weight.size(1);
    return at::addmm(a.bias, x.flatten(0, -2), a.weight).view(shape);
  }
  at::Tensor apply_norm(const Affine& a, const at::Tensor& x) const {
    return at::layer_norm(x, {config_.hidden}, a.weight, a.bias, config_.norm_eps);
  }
  static at::Tensor drop(const at::Tensor& x, double p, bool training) {
    return p > 0 ? at::dropout(x, p, training) : x;
  }
  at::Tensor block(const Block& b, const at::Tensor& in, bool training) const {
    const at::Tensor x = in.add(attention(b, apply_norm(b.ln_1, in), training));
    const at::Tensor up = at::gelu(apply(b.c_fc, apply_norm(b.ln_2, x)), "tanh");
    return x.add(drop(apply(b.mlp_proj, up), config_.resid_dropout, training));
  }
  at::Tensor attention(const Block& b, const at::Tensor& x, bool training) const {
    const int64_t rows = x.size(0), t = x.size(1);
    const auto qkv =
        apply(b.c_attn, x).view({rows, t, 3, config_.heads, config_.head_dim}).permute({2, 0, 3, 1, 4});
    const double p = training ? config_.attn_dropout : 0.0;
    const at::Tensor mixed =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, p, /*is_causal=*/true);
    return drop(apply(b.attn_proj, mixed.transpose(1, 2).reshape({rows, t, config_.hidden})),
                config_.resid_dropout, training);
  }

  at::Tensor wte_, wpe_, head_;
  std::vector<Block> blocks_;
  Affine ln_f_;
};

}  // namespace

std::shared_ptr<LanguageModel> make_gpt2(const ModelConfig& config, Filling filling) {
  return std::make_shared<Gpt2>(config, filling);
}

}  // namespace aliquot
