// Small models written as plain functions of named tensors: what an engine must train without knowing it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aliquot/engine/parameters.h"

namespace aliquot::test {

class Model {
 public:
  virtual ~Model() = default;
  virtual at::Tensor loss(const at::Tensor& x, const at::Tensor& y) const = 0;

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  at::Tensor& operator[](std::string_view name);
  /// Sets requires_grad of every parameter whose name starts with `prefix` to false.
  void freeze(std::string_view prefix);

 protected:
  /// Weights by formula: parameter number s, in order of registration, has salt s.
  at::Tensor add(std::string name, at::IntArrayRef shape, double scale, double offset = 0.0);
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true);
  void layer_norm(const std::string& name, int64_t width);
  at::Tensor apply_linear(const std::string& name, const at::Tensor& x) const;
  at::Tensor apply_layer_norm(const std::string& name, const at::Tensor& x) const;
  const at::Tensor& get(const std::string& name) const;

  std::vector<NamedTensor> parameters_;
  int64_t next_salt_ = 0;
};

/// 8 → 24 → 24 → 4 with tanh and mean squared error.
class Mlp final : public Model {
 public:
  explicit Mlp(bool unused = false);
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) const override;
};

struct GptShape {
  int64_t vocab = 31, width = 16, context = 8, layers = 2, heads = 2;
};

/// A GPT without dropout: pre-norm blocks, learned positions, cross-entropy over all positions.
class Gpt final : public Model {
 public:
  explicit Gpt(bool unused = false, bool tied = false, GptShape shape = {});
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets) const override;

 private:
  at::Tensor block(const std::string& name, const at::Tensor& x) const;
  GptShape shape_;
};

/// A batch of the golden runs: inputs and targets of step `step`, `rows` of them.
std::pair<at::Tensor, at::Tensor> mlp_batch(int64_t step, int64_t rows = 12);
std::pair<at::Tensor, at::Tensor> gpt_batch(int64_t step, const GptShape& shape = {}, int64_t rows = 12);

/// The rows that micro-step j of rank r sees: (j · world + r) · micro …
std::pair<at::Tensor, at::Tensor> micro_batch(const std::pair<at::Tensor, at::Tensor>& batch, int64_t j,
                                              int rank, int world, int64_t accumulation);

}  // namespace aliquot::test
