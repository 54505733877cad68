#include "aliquot/models/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "aliquot/error.h"
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

// Embedding and head share one weight, whose gradient is the sum of both uses.
TEST(ChunkedLoss, ATiedWeightGetsBothGradients) {
  const at::Tensor ids = integers({kRows}, 9, kVocab);
  const auto gradient = [&](bool chunked) {
    Problem p = make(at::kFloat);
    p.hidden = at::embedding(p.weight, ids).tanh();
    (chunked ? chunked_cross_entropy(p.hidden, p.weight, p.targets) : unchunked(p)).backward();
    return p.weight.grad();
  };
  EXPECT_LT(relative(gradient(true), gradient(false)), 1e-6);
}

TEST(ChunkedLoss, OnlyWhatIsTrainedGetsAGradient) {
  const Problem whole = make(at::kFloat);
  unchunked(whole).backward();
  Problem p = make(at::kFloat);
  p.weight = p.weight.detach();
  chunked_cross_entropy(p.hidden, p.weight, p.targets).backward();
  EXPECT_FALSE(p.weight.grad().defined());
  EXPECT_LT(relative(p.hidden.grad(), whole.hidden.grad()), 1e-6);
  p = make(at::kFloat);
  p.hidden = p.hidden.detach();
  chunked_cross_entropy(p.hidden, p.weight, p.targets).backward();
  EXPECT_LT(relative(p.weight.grad(), whole.weight.grad()), 1e-6);
}

TEST(ChunkedLoss, RowsInOneChunkOrManyAreTheSame) {
  for (const int64_t rows : {1, 2, 3, 5, 8}) {
    const at::Tensor hidden = values({rows, kHidden}, 1), weight = values({kVocab, kHidden}, 2);
    const at::Tensor targets = integers({rows}, 3, kVocab);
    const double whole = at::cross_entropy_loss(at::linear(hidden, weight), targets).item<double>();
    EXPECT_NEAR(chunked_cross_entropy(hidden, weight, targets).item<double>(), whole, 1e-6) << rows;
  }
  EXPECT_EQ(chunk_rows(50, kVocab), 13);
  EXPECT_EQ(chunk_rows(1 << 20, 1 << 18), 8);
  EXPECT_EQ(chunk_rows(4, int64_t{1} << 30), 1);
}

TEST(ChunkedLoss, TargetsOutsideTheVocabularyAreErrors) {
  for (const int64_t wrong : {kVocab, int64_t{-1}, int64_t{-101}}) {
    const Problem p = make(at::kFloat);
    p.targets[0] = wrong;
    EXPECT_ANY_THROW(chunked_cross_entropy(p.hidden, p.weight, p.targets)) << wrong;
  }
}

TEST(ChunkedLoss, ASecondDerivativeIsRefused) {
  const Problem p = make(at::kFloat);
  const at::Tensor loss = chunked_cross_entropy(p.hidden, p.weight, p.targets);
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), UsageError);
  loss.backward();
  EXPECT_TRUE(p.weight.grad().defined());
}

TEST(ChunkedLoss, WithoutTargetsItIsNaN) {
  Problem p = make(at::kFloat);
  p.targets.fill_(-100);
  EXPECT_TRUE(std::isnan(chunked_cross_entropy(p.hidden, p.weight, p.targets).item<double>()));
}

}  // namespace
}  // namespace aliquot::test
