// Checkpoints under an engine, ours and re-entrant ones of users: the gradients at all stages.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "aliquot/engine/checkpoint.h"
#include "aliquot/engine/engine.h"
#include "aliquot/error.h"
#include "tests/support/formula.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

using Layer = std::function<at::Tensor(const at::Tensor&)>;

/// The classical checkpoint: a function of its own whose backward calls backward.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const Layer* layer) {
    ctx->save_for_backward({x});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    return (*layer)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto* layer = reinterpret_cast<const Layer*>(ctx->saved_data["layer"].toInt());
    const at::Tensor x = ctx->get_saved_variables()[0].detach().set_requires_grad(true);
    const c10::AutoGradMode grad(true);
    torch::autograd::backward({(*layer)(x)}, {grads[0]});
    return {x.grad(), at::Tensor()};
  }
};

enum class How { plain, checkpointed, reentrant };

/// Wraps uses of a layer, which must outlive backward.
at::Tensor use(How how, const Layer& layer, const at::Tensor& x) {
  switch (how) {
    case How::plain:
      return layer(x);
    case How::checkpointed:
      return checkpoint(layer, x);
    case How::reentrant:
      return Reentrant::apply(x, &layer);
  }
  return {};
}

struct Nets {
  at::Tensor w = values({8, 8}, 1).set_requires_grad(true), b = values({8}, 2).set_requires_grad(true),
             first = values({8, 8}, 3).set_requires_grad(true);
  Layer layer = [this](const at::Tensor& in) { return at::linear(in, w, b).tanh().exp(); };

  std::vector<NamedTensor> parameters() const { return {{"w", w}, {"b", b}, {"first", first}}; }

  /// F3: one layer applied six times, each use checkpointed, and its weight once more outside.
  at::Tensor recurrent(How how, const at::Tensor& x) {
    at::Tensor y = at::linear(x, first);
    for (int i = 0; i < 6; ++i) y = use(how, layer, y);
    return at::linear(y, w).square().mean();
  }
  at::Tensor siamese(How how, const at::Tensor& x) {
    const at::Tensor a = use(how, layer, at::linear(x, first)),
                     c = use(how, layer, at::linear(x.flip(0), first));
    return (a - c * 0.5).square().mean();
  }
};

Config sgd(int stage, int64_t bucket = 500'000'000) {
  Config config;
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.zero.stage3_max_live_parameters = 0;
  config.zero.reduce_bucket_size = bucket;
  config.gradient_clipping = 0;
  config.train_micro_batch_size_per_gpu = 1;
  config.optimizer = OptimizerConfig{.kind = OptimizerKind::sgd, .lr = 0.5};
  return config;
}

EngineOptions quiet() {
  EngineOptions options;
  options.quiet = true;
  return options;
}

using Loss = at::Tensor (Nets::*)(How, const at::Tensor&);

struct Trained {
  std::vector<at::Tensor> parameters;
  int64_t reduce_bytes = 0;
};

// Two steps; rank 0's parameters. `direct`: by the user's own loss.backward().
Trained train(const Config& config, int world, Loss loss, How how, bool direct) {
  Trained out;
  run_ranks(world, [&](const Comm& comm) {
    at::set_num_threads(1);
    Nets nets;
    Engine engine(nets.parameters(), config, comm, quiet());
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = values({6, 8}, static_cast<uint64_t>(10 * step + comm.rank() + 20));
      const at::Tensor value = (nets.*loss)(how, x);
      if (direct) {
        engine.scale(value).backward();
      } else {
        engine.backward(value);
      }
      engine.step();
      EXPECT_TRUE(engine.was_step_applied());
    }
    EXPECT_EQ(engine.live_numel(), 0);
    Trained own;
    own.reduce_bytes = engine.last_step().reduce_bytes;
    for (const std::string& name : engine.names()) own.parameters.push_back(engine.full_param(name).clone());
    if (comm.rank() == 0) out = own;
  });
  return out;
}

class CheckpointStages : public testing::TestWithParam<int> {};

TEST_P(CheckpointStages, F3_SharedWeightsAreTheSameBitsInOneReduction) {
  for (const Loss loss : {&Nets::recurrent, &Nets::siamese}) {
    for (const int world : {1, 2}) {
      for (const bool direct : {false, true}) {
        const Trained plain = train(sgd(GetParam()), world, loss, How::plain, direct);
        const Trained again = train(sgd(GetParam()), world, loss, How::checkpointed, direct);
        for (size_t i = 0; i < plain.parameters.size(); ++i) {
          EXPECT_TRUE(plain.parameters[i].equal(again.parameters[i])) << i << ", world " << world;
        }
        EXPECT_EQ(plain.reduce_bytes, again.reduce_bytes);
      }
    }
  }
}

// Several deliveries of one gradient, and buckets so small that the first has left when the second comes.
TEST_P(CheckpointStages, F3_ReentrantCheckpointsOfUsers) {
  for (const Loss loss : {&Nets::recurrent, &Nets::siamese}) {
    for (const int world : {1, 2}) {
      for (const bool direct : {false, true}) {
        for (const int64_t bucket : {1, 500'000'000}) {
          const Trained plain = train(sgd(GetParam(), bucket), world, loss, How::plain, direct);
          const Trained again = train(sgd(GetParam(), bucket), world, loss, How::reentrant, direct);
          for (size_t i = 0; i < plain.parameters.size(); ++i) {
            EXPECT_TRUE(at::allclose(plain.parameters[i], again.parameters[i], 1e-5, 1e-6))
                << i << ", world " << world << ", bucket " << bucket << (direct ? ", direct" : "");
          }
        }
      }
    }
  }
}

TEST_P(CheckpointStages, D4_FrozenLayersInsideCheckpoints) {
  for (const bool first_is_frozen : {false, true}) {
    std::vector<at::Tensor> results;
    for (const How how : {How::plain, How::checkpointed}) {
      Nets nets;
      nets.b.set_requires_grad(false);
      (first_is_frozen ? nets.first : nets.w).set_requires_grad(false);
      Engine engine(nets.parameters(), sgd(GetParam()), {}, quiet());
      engine.backward(nets.recurrent(how, values({6, 8}, 5)));
      engine.step();
      EXPECT_TRUE(engine.full_param("b").equal(values({8}, 2)));
      results.push_back(engine.full_param(first_is_frozen ? "w" : "first").clone());
    }
    EXPECT_TRUE(results[0].equal(results[1]));
  }
}

TEST_P(CheckpointStages, AFailedRecomputationCostsOneWindow) {
  const auto run = [&](bool fails) {
    Nets nets;
    bool fail = false;
    nets.layer = [&](const at::Tensor& in) {
      const at::Tensor y = at::linear(in, nets.w, nets.b).tanh();
      if (fail) throw std::runtime_error("out of memory, say");
      return y.exp();
    };
    Engine engine(nets.parameters(), sgd(GetParam()), {}, quiet());
    if (fails) {
      const at::Tensor loss = nets.recurrent(How::checkpointed, values({6, 8}, 4));
      fail = true;
      EXPECT_THROW(engine.backward(loss), std::runtime_error);
      fail = false;
    }
    engine.backward(nets.recurrent(How::checkpointed, values({6, 8}, 5)));
    engine.step();
    return engine.full_param("w").clone();
  };
  EXPECT_TRUE(run(true).equal(run(false)));
}

TEST_P(CheckpointStages, AGraphFromBeforeAStepIsRefused) {
  Nets nets;
  Engine engine(nets.parameters(), sgd(GetParam()), {}, quiet());
  const at::Tensor old = nets.recurrent(How::checkpointed, values({6, 8}, 4));
  engine.backward(nets.recurrent(How::checkpointed, values({6, 8}, 5)));
  engine.step();
  EXPECT_THROW(engine.backward(old), std::exception) << "its parameters are others now";
}

INSTANTIATE_TEST_SUITE_P(Stages, CheckpointStages, testing::Range(0, 4));

}  // namespace
}  // namespace aliquot::test
