#include "aliquot/models/loss.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

namespace aliquot {
namespace {

constexpr int64_t kIgnored = -100;

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& targets) {
    const int64_t n = hidden.size(0), step = chunk_rows(n, weight.size(0));
    at::Tensor lse = at::empty({n}, at::kFloat);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (int64_t row = 0; row < n; row += step) {
      const int64_t end = std::min(n, row + step);
      const at::Tensor logits = at::linear(hidden.slice(0, row, end), weight).to(at::kFloat);
      const at::Tensor normaliser = at::logsumexp(logits, {1});
      lse.slice(0, row, end).copy_(normaliser);
      const at::Tensor target = targets.slice(0, row, end);
      const at::Tensor picked = logits.gather(1, target.clamp_min(0).unsqueeze(1)).squeeze(1);
      sum.add_(normaliser.sub(picked).masked_fill(target.eq(kIgnored), 0).sum(at::kDouble));
    }
    const at::Tensor count = targets.ne(kIgnored).sum(at::kLong).to(at::kDouble);
    ctx->save_for_backward({hidden, weight, targets, lse});
    return sum.div(count).to(at::kFloat);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2], &lse = saved[3];
    const int64_t n = hidden.size(0), step = chunk_rows(n, weight.size(0));
    const at::Tensor scale = grads[0].to(at::kFloat).div(targets.ne(kIgnored).sum(at::kLong));
    at::Tensor grad_hidden = at::empty(hidden.sizes(), hidden.options());
    at::Tensor grad_weight = at::zeros(weight.sizes(), at::kFloat);
    for (int64_t row = 0; row < n; row += step) {
      const int64_t end = std::min(n, row + step);
      const at::Tensor input = hidden.slice(0, row, end), target = targets.slice(0, row, end);
      at::Tensor p = at::linear(input, weight).to(at::kFloat);
      p.sub_(lse.slice(0, row, end).unsqueeze(1)).exp_();
      const at::Tensor one = at::scalar_tensor(-1.0, at::kFloat).expand({end - row, 1});
      p.scatter_add_(1, target.clamp_min(0).unsqueeze(1), one);
      p.mul_(scale).masked_fill_(target.eq(kIgnored).unsqueeze(1), 0);
      p = p.to(hidden.scalar_type());
      grad_hidden.slice(0, row, end).copy_(at::mm(p, weight));
      if (weight.scalar_type() == at::kFloat) {
        grad_weight.addmm_(p.t(), input);
      } else {
        grad_weight.add_(at::mm(p.t(), input));
      }
    }
    return {grad_hidden, grad_weight.to(weight.scalar_type()), at::Tensor()};
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
