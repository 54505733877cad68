// One step of every optimizer from equal state against the formula in long double [Note: arithmetic, A6].
#include <functional>

#include "testing.h"

namespace aliquot {
namespace {

using kernels::Hyper;
using kernels::Slice;
using testing::OnTarget;
using testing::ulp;
using Real = long double;

// One element: before, then after the exact formula. `update` is what the bound calls the update: p moves by
// −lr·update.
struct Exact {
  Real p, m, v, g;
  Real update = 0;
};

Real correction(double beta, const Hyper& h) {
  return h.bias_correction ? 1 - std::pow(static_cast<Real>(beta), static_cast<Real>(h.step)) : 1;
}

void exact_adam(Exact& e, const Hyper& h, bool decoupled) {
  const Real p = e.p, g = decoupled ? e.g : e.g + h.weight_decay * p;
  e.m = h.beta1 * e.m + (1 - static_cast<Real>(h.beta1)) * g;
  e.v = h.beta2 * e.v + (1 - static_cast<Real>(h.beta2)) * g * g;
  e.update = e.m / correction(h.beta1, h) / (std::sqrt(e.v / correction(h.beta2, h)) + h.eps);
  e.p = p - h.lr * e.update - (decoupled ? h.lr * h.weight_decay * p : 0);
}

void exact_sgd(Exact& e, const Hyper& h) {
  const Real g = e.g + h.weight_decay * e.p;
  e.update = g;
  if (h.momentum != 0) {
    e.m = h.step == 1 ? g : h.momentum * e.m + (1 - static_cast<Real>(h.dampening)) * g;
    e.update = h.nesterov ? g + h.momentum * e.m : e.m;
  }
  e.p -= h.lr * e.update;
}

void exact_lion(Exact& e, const Hyper& h) {
  const Real c = h.beta1 * e.m + (1 - static_cast<Real>(h.beta1)) * e.g;
  e.update = c > 0 ? 1 : c < 0 ? -1 : 0;
  e.m = h.beta2 * e.m + (1 - static_cast<Real>(h.beta2)) * e.g;
  e.p = e.p * (1 - static_cast<Real>(h.lr) * h.weight_decay) - h.lr * e.update;
}

void exact_adagrad(Exact& e, const Hyper& h) {
  const Real g = e.g + h.weight_decay * e.p;
  e.m += g * g;
  e.update = g / (std::sqrt(e.m) + h.eps);
  e.p -= h.lr * e.update;
}

void exact_lamb(Exact& e, const Hyper& h, bool eps_inside_sqrt, Real trust_ratio) {
  e.m = h.beta1 * e.m + (1 - static_cast<Real>(h.beta1)) * e.g;
  e.v = h.beta2 * e.v + (1 - static_cast<Real>(h.beta2)) * e.g * e.g;
  const Real u =
      e.m / (eps_inside_sqrt ? std::sqrt(e.v + h.eps) : std::sqrt(e.v) + h.eps) + h.weight_decay * e.p;
  e.update = std::sqrt(correction(h.beta2, h)) / correction(h.beta1, h) * trust_ratio * u;
  e.p -= h.lr * e.update;
}

struct Optimizer {
  const char* name;
  std::function<void(const Slice&, const Hyper&)> kernel;
  std::function<void(Exact&, const Hyper&)> exact;
  bool squares;  // the first moment is a sum of squares
};

const std::vector<Optimizer>& optimizers() {
  const auto lamb = [](bool inside) {
    return [inside](const Slice& s, const Hyper& h) {
      kernels::lamb_moments(s, h, inside);
      kernels::lamb_apply(s, h, inside, 0.6);
    };
  };
  static const std::vector<Optimizer> all{
      {"adam", kernels::adam, [](Exact& e, const Hyper& h) { exact_adam(e, h, false); }, false},
      {"adamw", kernels::adamw, [](Exact& e, const Hyper& h) { exact_adam(e, h, true); }, false},
      {"sgd", kernels::sgd, exact_sgd, false},
      {"lion", kernels::lion, exact_lion, false},
      {"adagrad", kernels::adagrad, exact_adagrad, true},
      {"lamb", lamb(false), [](Exact& e, const Hyper& h) { exact_lamb(e, h, false, 0.6); }, false},
      {"lamb, eps inside", lamb(true), [](Exact& e, const Hyper& h) { exact_lamb(e, h, true, 0.6); }, false}};
  return all;
}

// Hyperparameters that bring out every branch, at steps where the bias corrections are far from and near 1.
std::vector<Hyper> hypers() {
  std::vector<Hyper> all;
  for (const int64_t step : {1, 2, 10, 1000, 100000}) {
    for (const double weight_decay : {0.0, 0.1}) {
      Hyper h{
          .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = weight_decay, .step = step};
      all.push_back(h);
      h.momentum = 0.9, h.dampening = 0.3, h.bias_correction = false, h.beta2 = 0.95;
      all.push_back(h);
      h.nesterov = true, h.dampening = 0, h.lr = 0.3, h.beta1 = 0, h.eps = 1e-3;
      all.push_back(h);
    }
  }
  return all;
}

// Magnitudes of eight decades; every third gradient nearly cancels the first moment in Adam's and Lion's
// means.
struct Start {
  std::vector<float> p, g, m, v;
};

Start start(std::mt19937_64& random, int64_t n, bool squares) {
  std::uniform_real_distribution<float> decade(-4, 4);
  Start s{testing::normal(random, n), testing::normal(random, n), testing::normal(random, n),
          testing::normal(random, n)};
  for (size_t i = 0; i < s.p.size(); ++i) {
    const float scale = std::pow(10.0F, decade(random));
    s.p[i] *= std::pow(10.0F, decade(random) / 2);
    s.g[i] *= scale;
    s.m[i] *= squares ? scale * scale : scale / 3;
    s.v[i] *= scale * scale;
    s.v[i] = std::abs(s.v[i]);
    if (squares) s.m[i] = std::abs(s.m[i]);
    if (i % 3 == 0 && !squares) s.g[i] = -9 * s.m[i] * (1 + 1e-6F * s.p[i]);
    if (i % 7 == 0) s.g[i] = 0;
  }
  return s;
}

class Update : public ::testing::TestWithParam<const char*> {};

TEST_P(Update, OneStepIsWithinTheBoundOfTheExactFormula) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(41);
  constexpr int64_t kN = 1000;
  constexpr float kFactor = 0.37F;
  for (const Optimizer& optimizer : optimizers()) {
    double worst = 0, worst_moment = 0;
    for (Hyper h : hypers()) {
      Start s = start(random, kN, optimizer.squares);
      if (h.step == 1 && !optimizer.squares) std::ranges::fill(s.m, 0.0F), std::ranges::fill(s.v, 0.0F);
      const Start before = s;
      Slice slice{.master = s.p.data(),
                  .grad = s.g.data(),
                  .factor = kFactor,
                  .moment1 = s.m.data(),
                  .moment2 = s.v.data(),
                  .n = kN};
      optimizer.kernel(slice, h);
      for (size_t i = 0; i < kN; ++i) {
        Exact e{before.p[i], before.m[i], before.v[i], before.g[i] * kFactor};
        optimizer.exact(e, h);
        const double allowed =
            2 * ulp(static_cast<double>(e.p)) + 4 * ulp(static_cast<double>(h.lr * e.update));
        const double off = static_cast<double>(std::abs(s.p[i] - e.p));
        worst = std::max(worst, off / allowed);
        worst_moment = std::max(worst_moment,
                                static_cast<double>(std::abs(s.m[i] - e.m)) / ulp(static_cast<double>(e.m)));
        worst_moment = std::max(worst_moment,
                                static_cast<double>(std::abs(s.v[i] - e.v)) / ulp(static_cast<double>(e.v)));
        ASSERT_LE(off, allowed) << optimizer.name << ", element " << i << ", step " << h.step;
      }
      ASSERT_LE(worst_moment, 1) << optimizer.name << ", step " << h.step;
    }
    std::printf("%-18s parameter %.2f of the bound, moments %.2f ulp\n", optimizer.name, worst, worst_moment);
  }
}

TEST_P(Update, LambNormsAreThoseOfParameterAndUpdate) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(42);
  for (const int64_t n : {1, 8, 4099, 10000}) {
    Start s = start(random, n, false);
    const Start before = s;
    const Hyper h{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01, .step = 3};
    const kernels::LambNorms norms = kernels::lamb_moments(
        {.master = s.p.data(), .grad = s.g.data(), .moment1 = s.m.data(), .moment2 = s.v.data(), .n = n}, h,
        false);
    Real update = 0;
    for (size_t i = 0; i < before.p.size(); ++i) {
      Exact e{before.p[i], before.m[i], before.v[i], before.g[i]};
      exact_lamb(e, h, false, 1);
      const Real u = e.update * correction(h.beta1, h) / std::sqrt(correction(h.beta2, h));
      update += u * u;
    }
    EXPECT_EQ(norms.param, kernels::sum_of_squares(before.p.data(), DType::fp32, n));
    EXPECT_NEAR(norms.update, static_cast<double>(update), 1e-6 * static_cast<double>(update));
    EXPECT_EQ(s.p, before.p);
  }
}

// user-pains H2: updates far below the spacing of bf16 at 1 are not lost.
TEST_P(Update, MastersKeepWhatSixteenBitsWouldLose) {
  const OnTarget target(GetParam());
  float master = 1;
  const float grad = 1;
  uint16_t published = 0;
  for (int step = 1; step <= 100; ++step) {
    kernels::sgd({.master = &master, .grad = &grad, .publish = &published, .n = 1},
                 {.lr = 0x1p-10, .step = step});
  }
  EXPECT_EQ(master, 0.90234375F);
  EXPECT_EQ(published, 0x3F67);  // 0.90234375 is exact in bf16
}

// What is published is the new master, rounded; the master itself does not see it.
TEST_P(Update, PublishedParametersAreTheRoundedMasters) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(43);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Start s = start(random, 3000, false), plain = s;
    std::vector<std::byte> published(6000);
    const Hyper h{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 4};
    const Slice slice{.master = plain.p.data(),
                      .grad = plain.g.data(),
                      .moment1 = plain.m.data(),
                      .moment2 = plain.v.data(),
                      .n = 3000};
    kernels::adamw(slice, h);
    kernels::adamw({.master = s.p.data(),
                    .grad = s.g.data(),
                    .moment1 = s.m.data(),
                    .moment2 = s.v.data(),
                    .publish = published.data(),
                    .publish_dtype = dtype,
                    .n = 3000},
                   h);
    EXPECT_EQ(s.p, plain.p);
    EXPECT_EQ(published, testing::in_dtype(s.p, dtype));
  }
}

// J8: with a zero gradient decoupled decay shrinks p by lr·wd; coupled decay goes through the moments.
TEST_P(Update, AdamWShrinksWhatAdamNormalises) {
  const OnTarget target(GetParam());
  float decoupled = 1, coupled = 1, m[2] = {}, v[2] = {};
  const float grad = 0;
  const Hyper h{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
  kernels::adamw({.master = &decoupled, .grad = &grad, .moment1 = &m[0], .moment2 = &v[0], .n = 1}, h);
  kernels::adam({.master = &coupled, .grad = &grad, .moment1 = &m[1], .moment2 = &v[1], .n = 1}, h);
  EXPECT_FLOAT_EQ(decoupled, 0.99F);
  EXPECT_FLOAT_EQ(coupled, 0.9F);  // m/√v = 1 at the first step, whatever the size of wd·p
}

TEST_P(Update, LionStandsStillWhereNothingPushes) {
  const OnTarget target(GetParam());
  float p[] = {1, 1, 1, 1}, m[] = {0, 1, -0.5F, 0};
  const float g[] = {0, -9, 0, 1e-30F};  // 0.9·1 − 0.1·9 = 0 up to the rounding of 0.9 and 0.1 themselves
  kernels::lion({.master = p, .grad = g, .moment1 = m, .n = 4}, {.lr = 0.25, .beta1 = 0.5, .beta2 = 0.5});
  EXPECT_EQ(p[0], 1);
  EXPECT_EQ(p[1], 1.25F);
  EXPECT_EQ(p[2], 1.25F);
  EXPECT_EQ(p[3], 0.75F);
  EXPECT_EQ(m[1], -4);
}

INSTANTIATE_TEST_SUITE_P(Targets, Update,
                         ::testing::ValuesIn(kernels::available_targets().begin(),
                                             kernels::available_targets().end()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aliquot
