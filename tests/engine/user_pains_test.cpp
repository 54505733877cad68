// What users of such engines suffered from, each case with its right value. The letters are those of the
// catalogue in docs/user_pains.md.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "aliquot/engine/engine.h"
#include "aliquot/engine/gathered_parameters.h"
#include "aliquot/engine/unfilled.h"
#include "aliquot/error.h"
#include "tests/support/formula.h"
#include "tests/support/models.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Config sgd(int stage, int64_t accumulation = 1, double lr = 1.0) {
  Config config;
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.gradient_clipping = 0;
  config.gradient_accumulation_steps = accumulation;
  config.train_micro_batch_size_per_gpu = 1;
  config.optimizer = OptimizerConfig{.kind = OptimizerKind::sgd, .lr = lr};
  return config;
}

EngineOptions quiet() {
  EngineOptions options;
  options.quiet = true;
  return options;
}

at::Tensor param(at::IntArrayRef shape, double value) {
  return at::full(shape, value).set_requires_grad(true);
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

class Pains : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

// ---- A: overflow and NaN
// ---------------------------------------------------------------------------------------------

TEST_P(Pains, A1_NaNLossSkipsKeepsWeightsAndStopsInTheEnd) {
  at::Tensor w = param({4}, 1.0);
  Config config = sgd(GetParam());
  config.fp16.enabled = true;
  EngineOptions options = quiet();
  options.nonfinite_loss_limit = 3;
  Engine engine({{"w", w}}, config, {}, options);
  const auto bad_step = [&] {
    engine.backward(w.to(at::kFloat).sum() * std::numeric_limits<double>::quiet_NaN());
    engine.step();
  };
  for (int i = 0; i < 2; ++i) {
    bad_step();
    EXPECT_FALSE(engine.was_step_applied());
    EXPECT_NE(engine.last_step().skip_reason.find("the loss is NaN"), std::string::npos)
        << engine.last_step().skip_reason;
    EXPECT_TRUE(engine.full_param("w").equal(at::ones({4})));
  }
  EXPECT_NE(message_of(bad_step).find("3 steps in a row, up to step 3"), std::string::npos);
}

TEST_P(Pains, A8_A9_A10_A12_NonFiniteGradientInBf16IsNamedAndChangesNothing) {
  run_ranks(3, [&](const Comm& comm) {
    at::Tensor a = param({5}, 1.0), b = param({7}, 1.0);
    Config config = sgd(GetParam());
    config.bf16.enabled = true;
    config.gradient_clipping = 1.0;
    config.optimizer = OptimizerConfig{.lr = 0.1};
    config.scheduler.kind = SchedulerKind::warmup;
    config.scheduler.warmup_num_steps = 10;
    Engine engine({{"first", a}, {"second", b}}, config, comm, quiet());
    const auto train = [&](double factor) {
      engine.backward((a.to(at::kFloat) * 1.0).sum() + (b.to(at::kFloat) * at::full({7}, factor)).sum());
      engine.step();
    };
    train(1.0);
    const at::Tensor before = engine.full_param("second"),
                     moment = *engine.full_optimizer_state("second", "exp_avg");
    const double lr = engine.lr()[0];
    train(comm.rank() == 1 ? kInf : 1.0);
    EXPECT_FALSE(engine.was_step_applied());
    EXPECT_EQ(engine.skipped_steps(), 1);
    EXPECT_FALSE(std::isfinite(engine.global_grad_norm())) << "never a sentinel such as -1";
    EXPECT_EQ(engine.lr()[0], lr) << "schedules advance with applied steps only";
    const std::string& why = engine.last_step().skip_reason;
    EXPECT_EQ(why.find("scale"), std::string::npos) << why;
    EXPECT_TRUE(engine.full_param("second").equal(before));
    EXPECT_TRUE(engine.full_optimizer_state("second", "exp_avg")->equal(moment));
    train(1.0);
    EXPECT_TRUE(engine.was_step_applied());
    EXPECT_EQ(engine.param_step("second"), 2);
  });
}

TEST_P(Pains, A5_StaticLossScaleStays) {
  at::Tensor w = param({4, 4}, 0.5);
  Config config = sgd(GetParam());
  config.fp16.enabled = true;
  config.fp16.loss_scale = 128;
  Engine engine({{"w", w}}, config, {}, quiet());
  for (int i = 0; i < 10; ++i) {
    engine.backward(w.to(at::kFloat).sum() * (i == 4 ? kInf : 0.01));
    EXPECT_EQ(engine.step(), i != 4);
    EXPECT_EQ(engine.loss_scale(), 128);
  }
  EXPECT_NEAR(engine.full_param("w")[0][0].item<double>(), 0.5 - 9 * 0.01, 1e-4);
}

// Ten fp16 steps with growth and overflow: the update of a growth step is whole, at stage 0 too (golden
// loss_scale.json).
TEST_P(Pains, A7_GrowthStepsUpdateInFull) {
  at::Tensor w = param({8}, 1.0);
  Config config = sgd(GetParam());
  config.fp16 = {.enabled = true, .initial_scale_power = 4, .loss_scale_window = 2, .hysteresis = 1};
  Engine engine({{"w", w}}, config, {}, quiet());
  const std::string overflow = "0010000100";
  double expected = 1.0;
  for (const char o : overflow) {
    engine.backward((w * at::full({8}, o == '1' ? kInf : 0.25, at::kHalf)).sum().to(at::kFloat));
    engine.step();
    expected -= o == '1' ? 0 : 0.25;
    EXPECT_EQ(engine.full_param("w")[3].item<double>(), expected);
    if (o == '0') {
      EXPECT_NEAR(engine.global_grad_norm(), 0.25 * std::sqrt(8.0), 1e-12);
    }
  }
}

// ---- B: accumulation
// -------------------------------------------------------------------------------------------------

TEST_P(Pains, B2_SeveralBackwardsBeforeAStepAdd) {
  at::Tensor w = param({3}, 0.0);
  Engine engine({{"w", w}}, sgd(GetParam()), {}, quiet());
  for (const double g : {1.0, 2.0, 4.0}) engine.backward((w * g).sum());
  engine.step();
  EXPECT_TRUE(engine.full_param("w").equal(at::full({3}, -7.0)));
}

TEST_P(Pains, B4_OneSwitchForTheDivisionByAccumulation) {
  for (const bool divide : {true, false}) {
    at::Tensor w = param({1}, 0.0);
    Engine engine({{"w", w}}, sgd(GetParam(), 2), {}, quiet());
    for (const double loss : {1.0, 2.0}) {
      engine.backward((w * loss).sum(), {.scale_wrt_gas = divide});
      engine.step();
    }
    EXPECT_EQ(engine.full_param("w")[0].item<double>(), divide ? -1.5 : -3.0);
    engine.backward((w * 1.0).sum(), {.scale_wrt_gas = true});
    EXPECT_NE(
        message_of([&] { engine.backward((w * 1.0).sum(), {.scale_wrt_gas = false}); }).find("scale_wrt_gas"),
        std::string::npos);
  }
}

TEST_P(Pains, B6_NoSync) {
  at::Tensor w = param({2}, 0.0);
  Engine engine({{"w", w}}, sgd(GetParam()), {}, quiet());
  if (GetParam() >= 2) {
    EXPECT_NE(message_of([&] { (void)engine.no_sync(); }).find("stage"), std::string::npos);
    return;
  }
  {
    const auto scope = engine.no_sync();
    engine.backward(w.sum());
    EXPECT_THROW(engine.step(), UsageError);
    EXPECT_THROW((void)engine.no_sync(), UsageError);
  }
  engine.backward(w.sum());
  engine.step();
  EXPECT_TRUE(engine.full_param("w").equal(at::full({2}, -2.0)));
}

TEST_P(Pains, B7_ParametersWithGradientsNowAndThenOrNever) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor always = param({3}, 0.0), branch = param({5}, 0.0), never = param({1}, 0.5);
    Config config = sgd(GetParam(), 4);
    config.optimizer->weight_decay = 0.1;
    Engine engine({{"always", always}, {"branch", branch}, {"never", never}}, config, comm, quiet());
    for (int j = 0; j < 4; ++j) {
      at::Tensor loss = always.sum();
      if (j == 0 || j == 2) loss = loss + (branch * (j + 1.0)).sum();
      engine.backward(loss);
      engine.step();
    }
    EXPECT_TRUE(engine.full_param("branch").equal(at::full({5}, -1.0))) << "(1 + 3) / 4";
    EXPECT_EQ(engine.full_param("never").item<double>(), 0.5) << "no decay without a gradient, as in PyTorch";
    EXPECT_EQ(engine.param_step("never"), 0);
  });
}

TEST_P(Pains, H1_GradientsAccumulateInFp32) {
  at::Tensor w = param({2}, 0.0);
  Config config = sgd(GetParam(), 512);
  config.bf16.enabled = true;
  Engine engine({{"w", w}}, config, {}, quiet());
  for (int j = 0; j < 512; ++j) {
    engine.backward(w.sum());
    engine.step();
  }
  EXPECT_TRUE(engine.full_param("w").equal(at::full({2}, -1.0)));
}

TEST_P(Pains, H2_MastersKeepSmallUpdates) {
  at::Tensor w = param({1}, 1.0);
  Config config = sgd(GetParam(), 1, std::ldexp(1.0, -10));
  config.bf16.enabled = true;
  Engine engine({{"w", w}}, config, {}, quiet());
  for (int i = 0; i < 100; ++i) {
    engine.backward(w.sum());
    engine.step();
  }
  EXPECT_EQ(engine.full_param("w").item<double>(), 0.90234375);
}

// ---- C: clipping
// -----------------------------------------------------------------------------------------------------

TEST_P(Pains, C1_C2_C3_ClipByTheGlobalNorm) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor a = param({1}, 0.0), b = param({1}, 0.0);
    Config config = sgd(GetParam());
    config.gradient_clipping = 1.0;
    Engine engine({{"a", a}, {"b", b}}, config, comm, quiet());
    engine.backward((a * 3.0 + b * 4.0).sum());
    engine.step();
    EXPECT_NEAR(engine.global_grad_norm(), 5.0, 1e-12);
    EXPECT_NEAR(engine.last_step().clip_coefficient, 0.2, 1e-6);
    EXPECT_NEAR(engine.full_param("a").item<double>(), -0.59999988, 1e-7);
    EXPECT_NEAR(engine.full_param("b").item<double>(), -0.79999984, 1e-7);
  });
}

TEST_P(Pains, C4_TheNormIsTheWholeOneOnEveryRank) {
  run_ranks(4, [&](const Comm& comm) {
    at::Tensor w = param({16}, 0.0);
    Engine engine({{"w", w}}, sgd(GetParam()), comm, quiet());
    engine.backward(w.sum());
    engine.step();
    EXPECT_EQ(engine.global_grad_norm(), 4.0);
  });
}

// ---- D, F4: used by some ranks only
// ----------------------------------------------------------------------------------

TEST_P(Pains, D1_F4_ExpertsThatOnlySomeRanksUse) {
  run_ranks(2, [&](const Comm& comm) {
    std::vector<NamedTensor> experts;
    for (int e = 0; e < 3; ++e) experts.push_back({fmt::format("expert.{}", e), param({9}, 1.0)});
    Engine engine(experts, sgd(GetParam()), comm, quiet());
    // Rank 0 chooses expert 0, rank 1 expert 1; nobody expert 2.
    engine.backward((experts[static_cast<size_t>(comm.rank())].tensor * 2.0).sum());
    engine.step();
    EXPECT_TRUE(engine.full_param("expert.0").equal(at::full({9}, 0.0)));
    EXPECT_TRUE(engine.full_param("expert.1").equal(at::full({9}, 0.0)));
    EXPECT_TRUE(engine.full_param("expert.2").equal(at::full({9}, 1.0)));
  });
}

TEST_P(Pains, D4_D8_FrozenParametersCostNoOptimizerMemory) {
  at::Tensor frozen = at::full({64}, 2.0), live = param({64}, 1.0);
  Engine engine({{"frozen", frozen}, {"live", live}}, sgd(GetParam()), {}, quiet());
  EXPECT_EQ(engine.meter().current(Kind::moments, Place::host), 0);
  engine.backward((frozen * live).sum());
  EXPECT_FALSE(engine.full_grad("frozen").has_value());
  engine.step();
  EXPECT_TRUE(engine.full_param("frozen").equal(at::full({64}, 2.0)));
  EXPECT_TRUE(engine.full_param("live").equal(at::full({64}, -1.0)));
  frozen.set_requires_grad(true);
  EXPECT_NE(message_of([&] {
              engine.backward(live.sum());
            }).find("parameter frozen was frozen when the engine was built"),
            std::string::npos);
}

// ---- E: odd sizes
// ----------------------------------------------------------------------------------------------------

TEST_P(Pains, E1_E4_E5_E7_OddEmptyAndScalarParameters) {
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(world, [&](const Comm& comm) {
      std::vector<NamedTensor> params;
      for (const int64_t n : {5, 3, 1, 7, 64}) params.push_back({fmt::format("p{}", n), param({n}, 0.0)});
      params.push_back({"scalar", param({}, 0.0)});
      params.push_back({"square", param({1, 1}, 0.0)});
      params.push_back({"empty", param({4, 0}, 0.0)});
      for (const int64_t bucket : {1, 63, 64, 65, 1'000'000'000}) {
        Config config = sgd(GetParam());
        config.zero.reduce_bucket_size = bucket;
        std::vector<NamedTensor> fresh;
        for (const NamedTensor& p : params) fresh.push_back({p.name, param(p.tensor.sizes(), 0.0)});
        Engine engine(fresh, config, comm, quiet());
        at::Tensor loss = at::zeros({});
        for (const NamedTensor& p : fresh) {
          loss = loss + (p.tensor.flatten() * values({p.tensor.numel()}, 11, 2.0)).sum();
        }
        engine.backward(loss);
        engine.step();
        for (const NamedTensor& p : fresh) {
          // Exact but for the factor 1/3 of a world of three.
          EXPECT_TRUE(at::allclose(engine.full_param(p.name).flatten(), -values({p.tensor.numel()}, 11, 2.0),
                                   2e-7, 0))
              << p.name << " world " << world << " bucket " << bucket;
        }
      }
    });
  }
}

TEST_P(Pains, NonContiguousParametersKeepTheirStrides) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = values({6, 5}, 3).t().set_requires_grad(true);
    w = w.detach().set_requires_grad(true);
    const at::Tensor start = w.detach().clone();
    Engine engine({{"w", w}}, sgd(GetParam()), comm, quiet());
    EXPECT_FALSE(w.is_contiguous());
    engine.backward((w * values({5, 6}, 4)).sum());
    engine.step();
    EXPECT_TRUE(at::allclose(engine.full_param("w"), start - values({5, 6}, 4), 0, 1e-7));
  });
}

// ---- F: re-use, dynamic control flow
// ---------------------------------------------------------------------------------

TEST_P(Pains, F1_TwoForwardsOneBackward) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = param({4, 4}, 0.5);
    Engine engine({{"w", w}}, sgd(GetParam()), comm, quiet());
    const at::Tensor x1 = values({2, 4}, 1), x2 = values({3, 4}, 2);
    engine.backward(at::linear(x1, w).sum() + at::linear(x2, w).sum());
    engine.step();
    const at::Tensor expected = at::full({4, 4}, 0.5) - (x1.sum(0) + x2.sum(0)).expand({4, 4});
    EXPECT_TRUE(at::allclose(engine.full_param("w"), expected, 0, 1e-6));
  });
}

TEST_P(Pains, F5_F6_F7_RanksAndStepsMayDiffer) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor head = param({4, 4}, 0.1), branch = param({4, 4}, 0.1);
    Engine engine({{"head", head}, {"branch", branch}}, sgd(GetParam(), 1, 0.01), comm, quiet());
    for (int step = 0; step < 6; ++step) {
      // Evaluation of different length on each rank, then a loop of data-dependent length, then a branch that
      // flips.
      for (int i = 0; i < 3 + 2 * comm.rank(); ++i) (void)at::linear(at::ones({1, 4}), head.detach()).sum();
      at::Tensor x = at::ones({2, 4});
      for (int i = 0; i < 1 + 2 * comm.rank(); ++i) x = at::linear(x, head);
      if (step % 3 == 0) x = at::linear(x, branch);
      engine.backward(x.sum());
      engine.step();
      EXPECT_TRUE(engine.was_step_applied());
      EXPECT_EQ(engine.live_numel(), 0) << "nothing stays gathered after a step";
    }
    const std::vector<float> mine{engine.full_param("head")[0][0].item<float>()};
    std::vector<float> all(2);
    comm.all_gather(mine.data(), all.data(), sizeof(float), "compare");
    EXPECT_EQ(all[0], all[1]);
  });
}

TEST_P(Pains, RetainedGraphsAndStaleGraphs) {
  at::Tensor w = param({3}, 1.0);
  Engine engine({{"w", w}}, sgd(GetParam(), 1, 0.5), {}, quiet());
  const at::Tensor loss = (w * w).sum();
  engine.backward(loss, {.retain_graph = true});
  engine.backward(loss, {.retain_graph = true});
  engine.step();
  EXPECT_TRUE(engine.full_param("w").equal(at::full({3}, -1.0)));
  // The graph saw the old values: PyTorch must notice.
  EXPECT_NE(message_of([&] { engine.backward(loss); }).find("modified by an inplace operation"),
            std::string::npos);
  engine.zero_grad();
  engine.backward((w * w).sum());
  engine.step();
  EXPECT_TRUE(engine.full_param("w").equal(at::full({3}, 0.0)));
}

TEST_P(Pains, DirectBackwardWorksToo) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = param({7}, 0.0);
    Config config = sgd(GetParam());
    config.fp16.enabled = true;
    config.fp16.initial_scale_power = 8;
    Engine engine({{"w", w}}, config, comm, quiet());
    engine.scale(w.to(at::kFloat).sum()).backward();
    engine.step();
    EXPECT_TRUE(engine.full_param("w").equal(at::full({7}, -1.0)));
  });
}

// ---- several engines, groups, misuse
// ---------------------------------------------------------------------------------

TEST_P(Pains, K13_TwoEnginesInOneProcess) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor g = param({3}, 1.0), d = param({3}, 2.0);
    Engine generator({{"g", g}}, sgd(GetParam(), 1, 0.1), comm.channel("g"), quiet());
    Engine discriminator({{"d", d}}, sgd(3 - GetParam(), 1, 0.1), comm.channel("d"), quiet());
    generator.backward((d * g).sum());
    generator.step();
    // Its backward reached the discriminator's parameters; that window is dropped.
    discriminator.zero_grad();
    EXPECT_TRUE(at::allclose(generator.full_param("g"), at::full({3}, 0.8)));
    EXPECT_TRUE(discriminator.full_param("d").equal(at::full({3}, 2.0)));
  });
}

TEST_P(Pains, J5_GroupsHaveTheirOwnRates) {
  run_ranks(2, [&](const Comm& comm) {
    std::vector<NamedTensor> params;
    for (int i = 0; i < 6; ++i) params.push_back({fmt::format("p{}", i), param({5}, 1.0)});
    EngineOptions options = quiet();
    ParamGroup slow, none;
    slow.names = {"p1", "p4"};
    slow.lr = 0.01;
    slow.weight_decay = 0.1;
    none.names = {"p2", "p5"};
    none.lr = 0.0;
    options.groups = {slow, none};
    Engine engine(params, sgd(GetParam(), 1, 0.1), comm, options);
    at::Tensor loss = at::zeros({});
    for (const NamedTensor& p : params) loss = loss + p.tensor.sum();
    engine.backward(loss);
    engine.step();
    const std::vector<double> expected{0.9, 1 - 0.01 * 1.1, 1.0, 0.9, 1 - 0.01 * 1.1, 1.0};
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(engine.full_param(params[i].name)[4].item<double>(), expected[i], 1e-7) << i;
    }
  });
}

TEST_P(Pains, H3_NamesKeptInFp32) {
  at::Tensor norm = param({4}, 1.0), weight = param({4, 4}, 0.5);
  Config config = sgd(GetParam());
  config.bf16.enabled = true;
  config.keep_fp32 = {"norm"};
  Engine engine({{"norm.weight", norm}, {"fc.weight", weight}}, config, {}, quiet());
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
  engine.backward(at::linear(norm.to(at::kBFloat16).unsqueeze(0), weight).sum());
  engine.step();
  EXPECT_TRUE(engine.was_step_applied());
}

// As batch normalisation leaves them: statistics of each rank's own data.
TEST_P(Pains, H4_BuffersAreRankZerosAtEveryBoundary) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = param({4}, 1.0), mean = at::zeros({3, 2}, at::kDouble).t(),
               batches = at::zeros({}, at::kLong);
    EngineOptions options = quiet();
    options.buffers = {{"bn.running_mean", mean}, {"bn.num_batches_tracked", batches}};
    Engine engine({{"w", w}}, sgd(GetParam()), comm, options);
    for (int step = 1; step <= 3; ++step) {
      engine.backward(w.sum());
      if (step != 2) {
        mean.fill_(10 * step + comm.rank());
        batches.add_(1);
      }
      engine.step();
      const int last = step == 2 ? 1 : step;
      EXPECT_TRUE(mean.equal(at::full({2, 3}, 10.0 * last, at::kDouble))) << mean;
      EXPECT_EQ(batches.item<int64_t>(), step == 1 ? 1 : step - 1);
    }
    EXPECT_EQ(mean.scalar_type(), at::kDouble);
    EXPECT_EQ(batches.scalar_type(), at::kLong);
  });
}

// A model that is never whole: values come one parameter at a time, on rank 0.
TEST_P(Pains, ParametersWithoutMemoryAreFilledByTheEngine) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = unfilled({3, 5}).set_requires_grad(true), b = unfilled({2}).set_requires_grad(true);
    EngineOptions options = quiet();
    Config config = sgd(GetParam());
    config.bf16.enabled = true;
    EXPECT_NE(message_of([&] {
                Engine({{"w", w}}, config, comm, options);
              }).find("EngineOptions::fill"),
              std::string::npos);
    std::vector<std::string> filled;
    options.fill = [&](const std::string& name, at::Tensor& value) {
      filled.push_back(name);
      EXPECT_EQ(value.scalar_type(), at::kFloat);
      value.fill_(name == "w" ? 1.5 : -2.0);
    };
    Engine engine({{"w", w}, {"b", b}}, config, comm, options);
    EXPECT_EQ(filled.size(), comm.rank() == 0 ? 2U : 0U);
    EXPECT_TRUE(engine.full_param("w").equal(at::full({3, 5}, 1.5)));
    EXPECT_TRUE(engine.full_param("b").equal(at::full({2}, -2.0)));
    engine.backward((w.sum() + b.sum()));
    engine.step();
    EXPECT_TRUE(engine.full_param("w").equal(at::full({3, 5}, 0.5)));
  });
}

TEST_P(Pains, ReplicasThatDifferAreNamed) {
  if (GetParam() == 3) GTEST_SKIP() << "nothing is replicated";
  std::atomic<int> named{0};
  run_ranks(3, [&](const Comm& comm) {
    at::Tensor w = param({4}, 1.0), v = param({9}, 1.0).set_requires_grad(false);
    Config config = sgd(GetParam());
    config.replica_check_interval = 2;
    Engine engine({{"layer.w", w}, {"layer.frozen", v}}, config, comm, quiet());
    const auto step = [&] {
      engine.backward((w * v[0]).sum());
      engine.step();
    };
    step();
    step();
    if (comm.rank() == 2) *const_cast<float*>(v.const_data_ptr<float>() + 8) = 1.5F;
    step();
    const std::string error = message_of(step);
    EXPECT_NE(error.find("layer.frozen"), std::string::npos) << error;
    EXPECT_NE(error.find("rank 2 differs from rank 0"), std::string::npos) << error;
    EXPECT_FALSE(engine.is_usable());
    ++named;
  });
  EXPECT_EQ(named, 3);
}

TEST_P(Pains, MisuseIsNamed) {
  at::Tensor w = param({4}, 1.0);
  Engine engine({{"w", w}}, sgd(GetParam()), {}, quiet());
  EXPECT_NE(message_of([&] { engine.full_grad("w"); }).find("between backward() and step()"),
            std::string::npos);
  EXPECT_NE(message_of([&] { engine.full_param("v"); }).find("no parameter is called v"), std::string::npos);
  EXPECT_NE(message_of([&] { engine.backward(w); }).find("one floating-point number"), std::string::npos);
  EXPECT_NE(message_of([&] {
              Engine again({{"w", w}}, sgd(0), {}, quiet());
            }).find("already belongs to another engine"),
            std::string::npos);
  EXPECT_THROW(engine.set_train_batch_size(0), UsageError);
  w.mutable_grad() = at::ones({4});
  EXPECT_NE(message_of([&] { engine.step(); }).find("parameter w has a .grad"), std::string::npos);
  w.mutable_grad().reset();
  w.set_data(at::ones({4}));
  EXPECT_NE(
      message_of([&] { engine.backward(w.sum()); }).find("parameter w was replaced behind the engine's back"),
      std::string::npos);
}

TEST_P(Pains, SharedStoragesAndDoubleNamesAreRefused) {
  const at::Tensor base = at::ones({8});
  const at::Tensor a = base.slice(0, 0, 4).detach().set_requires_grad(true),
                   b = base.slice(0, 4).detach().set_requires_grad(true);
  EXPECT_NE(message_of([&] {
              Engine e({{"a", a}, {"b", b}}, sgd(GetParam()));
            }).find("shares its storage with a"),
            std::string::npos);
  const at::Tensor w = param({2}, 1.0);
  EXPECT_NE(message_of([&] {
              Engine e({{"w", w}, {"w", param({2}, 1.0)}}, sgd(GetParam()));
            }).find("w: is listed twice"),
            std::string::npos);
}

TEST_P(Pains, GatheredParametersChangeAllRanksAlikeOrNot) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = param({5}, 1.0);
    Config config = sgd(GetParam());
    config.bf16.enabled = true;
    Engine engine({{"w", w}}, config, comm, quiet());
    {
      GatheredParameters scope(engine, {"w"}, /*modifier_rank=*/1);
      if (comm.rank() == 1) w.detach().fill_(3);
      scope.close();
    }
    EXPECT_TRUE(engine.full_param("w").equal(at::full({5}, 3.0))) << "masters follow";
    EXPECT_EQ(w.to(at::kFloat).sum().item<double>(), 15.0);
    GatheredParameters scope(engine, {"w"});
    w.detach().fill_(comm.rank());
    EXPECT_NE(message_of([&] { scope.close(); }).find("ranks 0 and 1 wrote different values to w"),
              std::string::npos);
    EXPECT_TRUE(engine.full_param("w").equal(at::full({5}, 3.0)));
  });
}

TEST_P(Pains, AccessorsRoundTrip) {
  run_ranks(2, [&](const Comm& comm) {
    at::Tensor w = param({7, 3}, 1.0);
    Config config = sgd(GetParam());
    config.bf16.enabled = true;
    config.optimizer = OptimizerConfig{.lr = 0.1};
    Engine engine({{"w", w}}, config, comm, quiet());
    engine.set_full_param("w", values({7, 3}, 5));
    EXPECT_TRUE(engine.full_param("w").equal(values({7, 3}, 5)));
    EXPECT_TRUE(w.detach().equal(values({7, 3}, 5).to(at::kBFloat16)));
    engine.set_full_optimizer_state("w", "exp_avg", values({7, 3}, 6));
    EXPECT_TRUE(engine.full_optimizer_state("w", "exp_avg")->equal(values({7, 3}, 6)));
    engine.backward(w.to(at::kFloat).sum());
    EXPECT_TRUE(engine.full_grad("w")->equal(at::ones({7, 3})));
    engine.set_full_grad("w", at::full({7, 3}, 2.0));
    if (GetParam() >= 2) {
      EXPECT_TRUE(engine.full_grad("w")->equal(at::full({7, 3}, 2.0)));
    }
    engine.step();
    EXPECT_NEAR(engine.global_grad_norm(), 2 * std::sqrt(21.0), 1e-5);
    EXPECT_THROW(engine.full_optimizer_state("w", "momentum_buffer"), UsageError);
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, Pains, testing::Range(0, 4),
                         [](const auto& info) { return fmt::format("stage{}", info.param); });

TEST(Threads, FourThreadsEvaluateOneStage3Model) {
  at::set_num_threads(1);
  const Gpt model;
  Config config = sgd(3);
  config.zero.stage3_max_live_parameters = 1000;
  config.zero.stage3_max_reuse_distance = 0;
  Engine engine(model.parameters(), config, {}, quiet());
  const auto [x, y] = gpt_batch(0);
  const auto evaluate = [&, &x = x, &y = y] { return model.loss(x, y).item<double>(); };
  const double alone = evaluate();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const c10::AutoGradMode no_grad(false);
      for (int i = 0; i < 50; ++i) wrong[t] += evaluate() == alone ? 0 : 1;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Meter, ShowsTheFormulasBytes) {
  for (int stage = 1; stage < 4; ++stage) {
    for (const DType accumulate : {DType::bf16, DType::fp32}) {
      run_ranks(4, [&](const Comm& comm) {
        at::Tensor w = at::ones({128, 1000}).set_requires_grad(true);
        Config config = sgd(stage);
        config.bf16.enabled = true;
        config.grad_accum_dtype = accumulate;
        config.optimizer = OptimizerConfig{};
        const Engine engine({{"w", w}}, config, comm, quiet());
        const double n = 128000, extra = accumulate == DType::fp32 ? (stage == 1 ? 2 : 0.5) : 0;
        const double formula = stage == 1 ? 4 + 12.0 / 4 : stage == 2 ? 2 + 14.0 / 4 : 16.0 / 4;
        double held = 0;
        for (const Kind kind : {Kind::params, Kind::grads, Kind::master, Kind::moments}) {
          held += static_cast<double>(engine.meter().current(kind, Place::host));
        }
        EXPECT_DOUBLE_EQ(held / n, formula + extra) << "stage " << stage;
      });
    }
  }
}

}  // namespace
}  // namespace aliquot::test
