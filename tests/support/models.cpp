#include "tests/support/models.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "aliquot/error.h"
#include "tests/support/formula.h"

namespace aliquot::test {

at::Tensor& Model::operator[](std::string_view name) {
  for (NamedTensor& p : parameters_) {
    if (p.name == name) return p.tensor;
  }
  throw UsageError("no parameter " + std::string(name));
}

const at::Tensor& Model::get(const std::string& name) const {
  return const_cast<Model&>(*this)[name];
}

void Model::freeze(std::string_view prefix) {
  for (NamedTensor& p : parameters_) {
    if (p.name.starts_with(prefix)) p.tensor.set_requires_grad(false);
  }
}

at::Tensor Model::add(std::string name, at::IntArrayRef shape, double scale, double offset) {
  at::Tensor tensor = values(shape, static_cast<uint64_t>(next_salt_++), scale, offset);
  tensor.set_requires_grad(true);
  parameters_.push_back({std::move(name), tensor});
  return tensor;
}

void Model::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  add(name + ".weight", {out, in}, 0.5);
  if (bias) add(name + ".bias", {out}, 0.25);
}

void Model::layer_norm(const std::string& name, int64_t width) {
  add(name + ".weight", {width}, 0.25, 1.0);
  add(name + ".bias", {width}, 0.25);
}

at::Tensor Model::apply_linear(const std::string& name, const at::Tensor& x) const {
  return at::linear(x, get(name + ".weight"), get(name + ".bias"));
}

at::Tensor Model::apply_layer_norm(const std::string& name, const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, get(name + ".weight"), get(name + ".bias"));
}

Mlp::Mlp(bool unused) {
  linear("a", 8, 24);
  linear("b", 24, 24);
  linear("c", 24, 4);
  if (unused) linear("unused", 24, 3);
}

at::Tensor Mlp::loss(const at::Tensor& x, const at::Tensor& y) const {
  const at::ScalarType type = get("a.weight").scalar_type();
  at::Tensor h = at::tanh(apply_linear("a", x.to(type)));
  h = at::tanh(apply_linear("b", h));
  return at::mse_loss(apply_linear("c", h).to(at::kFloat), y);
}

Gpt::Gpt(bool unused, bool tied, GptShape shape) : shape_(shape) {
  const int64_t w = shape.width;
  add("tok.weight", {shape.vocab, w}, 0.5);
  add("pos.weight", {shape.context, w}, 0.5);
  for (int64_t l = 0; l < shape.layers; ++l) {
    const std::string block = "blocks." + std::to_string(l);
    layer_norm(block + ".ln1", w);
    layer_norm(block + ".ln2", w);
    linear(block + ".qkv", w, 3 * w);
    linear(block + ".out", w, w);
    linear(block + ".up", w, 4 * w);
    linear(block + ".down", 4 * w, w);
  }
  layer_norm("ln", w);
  if (tied) {
    parameters_.push_back({"head.weight", (*this)["tok.weight"]});
  } else {
    linear("head", w, shape.vocab, false);
  }
  if (unused) linear("unused", w, 3);
}

at::Tensor Gpt::block(const std::string& name, const at::Tensor& x) const {
  const int64_t n = x.size(0), t = x.size(1), w = shape_.width, head = w / shape_.heads;
  const at::Tensor qkv = apply_linear(name + ".qkv", apply_layer_norm(name + ".ln1", x))
                             .view({n, t, 3, shape_.heads, head})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor scores =
      at::matmul(qkv[0], qkv[1].transpose(-2, -1)).div(std::sqrt(static_cast<double>(head)));
  const at::Tensor hidden = at::ones({t, t}, at::kBool).triu(1);
  const at::Tensor mixed = at::matmul(
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1), qkv[2]);
  const at::Tensor y = x.add(apply_linear(name + ".out", mixed.transpose(1, 2).reshape({n, t, w})));
  const at::Tensor up = at::gelu(apply_linear(name + ".up", apply_layer_norm(name + ".ln2", y)), "tanh");
  return y.add(apply_linear(name + ".down", up));
}

at::Tensor Gpt::loss(const at::Tensor& ids, const at::Tensor& targets) const {
  at::Tensor x =
      at::embedding(get("tok.weight"), ids).add(at::embedding(get("pos.weight"), at::arange(ids.size(1))));
  for (int64_t l = 0; l < shape_.layers; ++l) x = block("blocks." + std::to_string(l), x);
  const at::Tensor logits = at::linear(apply_layer_norm("ln", x), get("head.weight"));
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten());
}

std::pair<at::Tensor, at::Tensor> mlp_batch(int64_t step, int64_t rows) {
  return {values({rows, 8}, static_cast<uint64_t>(1000 + step), 4.0),
          values({rows, 4}, static_cast<uint64_t>(2000 + step), 4.0)};
}

std::pair<at::Tensor, at::Tensor> gpt_batch(int64_t step, const GptShape& shape, int64_t rows) {
  const at::Tensor ids = integers({rows, shape.context + 1}, static_cast<uint64_t>(3000 + step), shape.vocab);
  return {ids.slice(1, 0, shape.context).contiguous(), ids.slice(1, 1).contiguous()};
}

std::pair<at::Tensor, at::Tensor> micro_batch(const std::pair<at::Tensor, at::Tensor>& batch, int64_t j,
                                              int rank, int world, int64_t accumulation) {
  const int64_t micro = batch.first.size(0) / world / accumulation;
  const int64_t start = (j * world + rank) * micro;
  return {batch.first.slice(0, start, start + micro), batch.second.slice(0, start, start + micro)};
}

}  // namespace aliquot::test
