// Against a plain LibTorch loop over the whole batch, in fp32: loss and norm of every step within 1e-6, after
// ten steps every weight tensor within a relative L2 error of 1e-6 (SGD) or 2e-5 (AdamW, which turns the sign
// of a tiny gradient into a whole step).
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "aliquot/engine/engine.h"
#include "tests/support/models.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

constexpr int64_t kSteps = 10, kRows = 18;
constexpr double kClip = 0.5, kLr = 1e-2, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;

struct Training {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;
};

/// The textbook: backward, clip_grad_norm_, SGD or AdamW as torch.optim writes them.
Training plain_loop(OptimizerKind kind) {
  Gpt model(false, /*tied=*/true);
  // A tied parameter is listed under both its names.
  std::map<void*, NamedTensor> unique;
  for (const NamedTensor& p : model.parameters()) unique.emplace(p.tensor.unsafeGetTensorImpl(), p);
  std::map<void*, at::Tensor> m, v;
  Training run;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto [x, y] = gpt_batch(step - 1, {}, kRows);
    const at::Tensor loss = model.loss(x, y);
    loss.backward();
    const c10::AutoGradMode no_grad(false);
    double squares = 0;
    for (auto& [key, p] : unique) squares += p.tensor.grad().to(at::kDouble).square().sum().item<double>();
    const double norm = std::sqrt(squares), scale = std::min(1.0, kClip / (norm + 1e-6));
    for (auto& [key, p] : unique) {
      const at::Tensor g = p.tensor.grad() * scale;
      if (kind == OptimizerKind::sgd) {
        p.tensor.sub_(g * kLr);
      } else {
        if (step == 1) m[key] = v[key] = at::zeros_like(g);
        p.tensor.mul_(1 - kLr * kDecay);
        m[key] = m[key] * kBeta1 + g * (1 - kBeta1);
        v[key] = v[key] * kBeta2 + g * g * (1 - kBeta2);
        const double correct1 = 1 - std::pow(kBeta1, step), correct2 = 1 - std::pow(kBeta2, step);
        p.tensor.sub_(m[key] / (at::sqrt(v[key]) / std::sqrt(correct2) + kEps) * (kLr / correct1));
      }
      p.tensor.mutable_grad().reset();
    }
    run.losses.push_back(loss.item<double>());
    run.norms.push_back(norm);
  }
  for (auto& [key, p] : unique) run.weights[p.name] = p.tensor.detach().clone();
  return run;
}

Config config_of(OptimizerKind kind, int stage, int64_t accumulation, int world) {
  Config config;
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.gradient_accumulation_steps = accumulation;
  config.train_micro_batch_size_per_gpu = kRows / world / accumulation;
  config.train_batch_size = kRows;
  config.gradient_clipping = kClip;
  config.optimizer =
      OptimizerConfig{.kind = kind, .lr = kLr, .weight_decay = kind == OptimizerKind::sgd ? 0 : kDecay};
  return config;
}

Training with_engine(const Config& config, const Comm& comm) {
  Gpt model(false, /*tied=*/true);
  Engine engine(model.parameters(), config, comm);
  Training run;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto batch = gpt_batch(step, {}, kRows);
    for (int64_t j = 0; j < config.gradient_accumulation_steps; ++j) {
      const auto [x, y] = micro_batch(batch, j, comm.rank(), comm.size(), config.gradient_accumulation_steps);
      engine.backward(model.loss(x, y));
      engine.step();
    }
    run.losses.push_back(engine.last_step().loss);
    run.norms.push_back(engine.global_grad_norm());
  }
  for (const std::string& name : engine.names()) run.weights[name] = engine.full_param(name);
  return run;
}

// A key bias shifts every score of a row alike: its gradient is rounding noise, whose sign AdamW follows.
at::Tensor without_key_bias(const std::string& name, const at::Tensor& weights) {
  if (!name.ends_with("qkv.bias")) return weights;
  at::Tensor rest = weights.clone();
  const int64_t third = rest.numel() / 3;
  rest.slice(0, third, 2 * third).zero_();
  return rest;
}

void expect_close(const Training& run, const Training& expected, double weights_within) {
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(run.losses[i], expected.losses[i], 1e-6 * expected.losses[i]) << "step " << i;
    EXPECT_NEAR(run.norms[i], expected.norms[i], 1e-6 * expected.norms[i]) << "step " << i;
  }
  ASSERT_FALSE(expected.weights.empty());
  for (const auto& [name, weights] : expected.weights) {
    ASSERT_TRUE(run.weights.contains(name)) << name;
    const at::Tensor want = without_key_bias(name, weights);
    const at::Tensor difference = without_key_bias(name, run.weights.at(name)) - want;
    EXPECT_LE(at::norm(difference).item<double>(), weights_within * at::norm(want).item<double>()) << name;
  }
}

class PlainLoop : public testing::TestWithParam<std::tuple<OptimizerKind, int>> {};

TEST_P(PlainLoop, IsWhatEveryStageComputes) {
  at::set_num_threads(1);
  const auto [kind, world] = GetParam();
  const Training expected = plain_loop(kind);
  std::mutex mutex;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int64_t accumulation : {1, 3}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << ", accumulation " << accumulation);
      run_ranks(world, [&](const Comm& comm) {
        const Training run = with_engine(config_of(kind, stage, accumulation, comm.size()), comm);
        const std::lock_guard lock(mutex);
        expect_close(run, expected, kind == OptimizerKind::sgd ? 1e-6 : 2e-5);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OptimizersAndWorlds, PlainLoop,
                         testing::Combine(testing::Values(OptimizerKind::sgd, OptimizerKind::adamw),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == OptimizerKind::sgd ? "sgd"
                                                                                            : "adamw") +
                                  "_world" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace aliquot::test
