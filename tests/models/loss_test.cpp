#include "aliquot/models/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tests/support/formula.h"

namespace aliquot::test {
namespace {

constexpr int64_t kRows = 50, kHidden = 16, kVocab = 97;

struct Problem {
  at::Tensor hidden, weight, targets;
};

Problem make(at::ScalarType type) {
  Problem p{values({kRows, kHidden}, 1, 2.0).to(type), values({kVocab, kHidden}, 2, 2.0).to(type),
            integers({kRows}, 3, kVocab)};
  p.targets[4] = -100;
  p.targets[kRows - 1] = -100;
  p.hidden.set_requires_grad(true);
  p.weight.set_requires_grad(true);
  return p;
}

at::Tensor unchunked(const Problem& p) {
  return at::cross_entropy_loss(at::linear(p.hidden, p.weight).to(at::kFloat), p.targets);
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() /
         b.to(at::kDouble).norm().item<double>();
}

TEST(ChunkedLoss, EqualsTheWholeOne) {
  for (const auto& [type, tolerance] : {std::pair(at::kFloat, 1e-6), std::pair(at::kBFloat16, 1e-2)}) {
    const Problem a = make(type), b = make(type);
    const at::Tensor chunked = chunked_cross_entropy(a.hidden, a.weight, a.targets), whole = unchunked(b);
    EXPECT_EQ(chunked.scalar_type(), at::kFloat);
    EXPECT_NEAR(chunked.item<double>(), whole.item<double>(), 1e-5);
    chunked.backward();
    whole.backward();
    EXPECT_LT(relative(a.hidden.grad(), b.hidden.grad()), tolerance);
    EXPECT_LT(relative(a.weight.grad(), b.weight.grad()), tolerance);
  }
}

// The logits' gradient carries the loss scale before it is rounded to fp16.
TEST(ChunkedLoss, Fp16GradientsDoNotVanish) {
  const Problem p = make(at::kHalf);
  (chunked_cross_entropy(p.hidden, p.weight, p.targets) * 65536.0).backward();
  EXPECT_LT(p.weight.grad().eq(0).sum().item<int64_t>(), p.weight.numel() / 100);
  const Problem exact = make(at::kFloat);
  unchunked(exact).backward();
  EXPECT_LT(relative(p.weight.grad().to(at::kFloat) / 65536.0, exact.weight.grad()), 2e-2);
}

TEST(ChunkedLoss, NoTensorHoldsTheWholeBatchOfLogits) {
  static std::atomic<int64_t> largest;
  largest = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
        for (const c10::IValue& v : fn.inputs()) {
          if (v.isTensor() && v.toTensor().defined())
            largest = std::max(largest.load(), v.toTensor().numel());
        }
        return nullptr;
      }).needsInputs(true));
  const Problem p = make(at::kFloat);
  chunked_cross_entropy(p.hidden, p.weight, p.targets).backward();
  at::removeCallback(handle);
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, kRows * kVocab);
}

TEST(ChunkedLoss, WithoutTargetsItIsNaN) {
  Problem p = make(at::kFloat);
  p.targets.fill_(-100);
  EXPECT_TRUE(std::isnan(chunked_cross_entropy(p.hidden, p.weight, p.targets).item<double>()));
}

}  // namespace
}  // namespace aliquot::test
