#include "aliquot/models/loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "aliquot/error.h"

namespace aliquot {
namespace {

constexpr int64_t kIgnored = -100;

// Index of each row's target for gather and scatter; an ignored row takes part with any. Other negative
// targets stay, so that gather refuses them as it does those beyond the vocabulary.
at::Tensor index_of(const at::Tensor& target) {
  return target.masked_fill(target.eq(kIgnored), 0).unsqueeze(1);
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& targets) {
    const int64_t n = hidden.size(0), step = chunk_rows(n, weight.size(0));
    at::Tensor lse = at::empty({n}, hidden.options().dtype(at::kFloat));
    at::Tensor sum = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (int64_t row = 0; row < n; row += step) {
      const int64_t end = std::min(n, row + step);
      const at::Tensor logits = at::linear(hidden.slice(0, row, end), weight).to(at::kFloat);
      const at::Tensor normaliser = at::logsumexp(logits, {1});
      lse.slice(0, row, end).copy_(normaliser);
      const at::Tensor target = targets.slice(0, row, end);
      const at::Tensor picked = logits.gather(1, index_of(target)).squeeze(1);
      sum.add_(normaliser.sub(picked).masked_fill(target.eq(kIgnored), 0).sum(at::kDouble));
    }
    const at::Tensor count = targets.ne(kIgnored).sum(at::kLong).to(at::kDouble);
    ctx->save_for_backward({hidden, weight, targets, lse});
    return sum.div(count).to(at::kFloat);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    // The saved log-sum-exp is a constant to autograd: a second derivative would be wrong without a word.
    if (c10::GradMode::is_enabled()) {
      throw UsageError(
          "the chunked loss has no second derivative: call backward without create_graph, or take the "
          "cross-entropy of logits()");
    }
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2], &lse = saved[3];
    const int64_t n = hidden.size(0), step = chunk_rows(n, weight.size(0));
    const at::Tensor scale = grads[0].to(at::kFloat).div(targets.ne(kIgnored).sum(at::kLong));
    at::Tensor grad_hidden, grad_weight;
    if (ctx->needs_input_grad(0)) grad_hidden = at::empty(hidden.sizes(), hidden.options());
    if (ctx->needs_input_grad(1)) grad_weight = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    for (int64_t row = 0; row < n; row += step) {
      const int64_t end = std::min(n, row + step);
      const at::Tensor input = hidden.slice(0, row, end);
      const at::Tensor p =
          grad_logits(input, weight, targets.slice(0, row, end), lse.slice(0, row, end), scale);
      if (grad_hidden.defined()) grad_hidden.slice(0, row, end).copy_(at::mm(p, weight));
      if (grad_weight.defined()) add_outer(grad_weight, p, input);
    }
    if (grad_weight.defined()) grad_weight = grad_weight.to(weight.scalar_type());
    return {grad_hidden, grad_weight, at::Tensor()};
  }

 private:
  // scale · (softmax(logits) − one-hot(target)), rounded to the inputs' dtype once the scale is in.
  static at::Tensor grad_logits(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target,
                                const at::Tensor& lse, const at::Tensor& scale) {
    at::Tensor p = at::linear(input, weight).to(at::kFloat);
    p.sub_(lse.unsqueeze(1)).exp_();
    p.scatter_add_(1, index_of(target), at::full({1, 1}, -1.0, p.options()).expand({p.size(0), 1}));
    p.mul_(scale).masked_fill_(target.eq(kIgnored).unsqueeze(1), 0);
    return p.to(input.scalar_type());
  }

  static void add_outer(at::Tensor& sum, const at::Tensor& p, const at::Tensor& input) {
    if (input.scalar_type() == at::kFloat) {
      sum.addmm_(p.t(), input);
    } else {
      sum.add_(at::mm(p.t(), input));
    }
  }
};

}  // namespace

int64_t chunk_rows(int64_t rows, int64_t vocab) {
  constexpr int64_t kLogits = int64_t{1} << 21;
  return std::clamp<int64_t>(kLogits / std::max<int64_t>(vocab, 1), 1, std::max<int64_t>((rows + 3) / 4, 1));
}

at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                 const at::Tensor& targets) {
  return ChunkedCrossEntropy::apply(hidden, weight, targets);
}

}  // namespace aliquot
