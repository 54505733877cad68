// Models whose blocks are computed again in backward: the same bits in less memory, alone and under an
// engine.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>

#include "aliquot/engine/engine.h"
#include "aliquot/engine/module.h"
#include "aliquot/error.h"
#include "aliquot/models/model.h"
#include "tests/support/formula.h"
#include "tests/support/live_bytes.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

using Settings = ActivationCheckpointingConfig;

constexpr int64_t kVocab = 97;

ModelConfig shape(Family family, double dropout) {
  ModelConfig c;
  c.family = family;
  c.vocab_size = kVocab;
  c.context = 32;
  c.layers = 5;
  c.hidden = 32;
  c.heads = 4;
  c.kv_heads = family == Family::gpt2 ? 4 : 2;
  c.head_dim = 8;
  c.intermediate = 48;
  c.tied_head = family == Family::gpt2;
  if (family == Family::mistral) c.sliding_window = 5;
  c.attn_dropout = dropout;
  if (family == Family::gpt2) c.embd_dropout = c.resid_dropout = dropout;
  return c;
}

const Family kFamilies[] = {Family::gpt2, Family::llama, Family::mistral, Family::qwen2};

std::vector<Settings> all_settings() {
  std::vector<Settings> out{{.enabled = true}};
  for (const int64_t n : {1, 3, 100}) out.push_back({.enabled = true, .number_checkpoints = n});
  for (const int64_t k : {2, 100}) out.push_back({.enabled = true, .every = k});
  return out;
}

std::string text(const Settings& s) {
  return !s.enabled ? "off"
                    : "number_checkpoints " + std::to_string(s.number_checkpoints.value_or(0)) + ", every " +
                          std::to_string(s.every);
}

at::Tensor random_state() {
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  return generator.get_state();
}

void seed(uint64_t value) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(value);
}

at::Tensor ids(uint64_t salt) {
  return integers({2, 16}, salt, kVocab);
}

using Values = std::map<std::string, at::Tensor>;

void expect_equal(const Values& a, const Values& b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(value.equal(b.at(name))) << name << ", " << where;
}

// The loss, the gradients, and the generator's state afterwards.
Values one_backward(LanguageModel& model) {
  seed(9);
  const at::Tensor loss = model.loss(ids(1), ids(2));
  loss.backward();
  Values out{{"loss", loss.detach()}, {"random state", random_state()}};
  for (const auto& item : model.named_parameters()) out[item.key()] = item.value().grad();
  return out;
}

TEST(ActivationCheckpointing, LossesAndGradientsAreTheSameBits) {
  at::set_num_threads(1);  // tensors this small
  for (const Family family : kFamilies) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const double dropout : {0.0, 0.2}) {
        const auto backward = [&](const Settings& settings) {
          const auto model = make_model(shape(family, dropout), 3);
          model->to(type);
          model->set_activation_checkpointing(settings);
          return one_backward(*model);
        };
        const Values plain = backward({});
        for (const Settings& settings : all_settings())
          expect_equal(plain, backward(settings), text(settings));
      }
    }
  }
}

TEST(ActivationCheckpointing, DropoutIsDrawnAndModesMaySwitchBeforeBackward) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const auto backward = [&](const Settings& settings, bool drops, bool switches) {
      const auto model = make_model(shape(family, 0.2), 3);
      model->set_activation_checkpointing(settings);
      model->train(drops);
      seed(9);
      const at::Tensor loss = model->loss(ids(1), ids(2));
      if (switches) model->train(!drops);
      loss.backward();
      return Values{{"w", model->parameters()[0].grad()}};
    };
    const Values plain = backward({}, true, false);
    EXPECT_FALSE(plain.at("w").equal(backward({}, false, false).at("w")));
    expect_equal(plain, backward({.enabled = true}, true, true), "eval() between forward and backward");
  }
}

TEST(ActivationCheckpointing, PeakMemoryFalls) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const auto peak = [&](const Settings& settings) {
      ModelConfig config = shape(family, 0.1);
      config.layers = 16;
      const auto model = make_model(config, 3);
      model->set_activation_checkpointing(settings);
      const at::Tensor x = integers({4, 32}, 1, kVocab);
      model->loss(x, x).backward();  // gradients are there from now on
      const LiveBytes bytes;
      model->loss(x, x).backward();
      return bytes.peak();
    };
    const int64_t none = peak({}), each = peak({.enabled = true}),
                  root = peak({.enabled = true, .number_checkpoints = 4}),
                  second = peak({.enabled = true, .every = 2});
    EXPECT_LT(each, none / 4);
    EXPECT_LT(root, none / 2);
    EXPECT_LT(second, none * 2 / 3);
    EXPECT_GT(second, each);
  }
}

TEST(ActivationCheckpointing, EvaluationComputesOnce) {
  const auto model = make_model(shape(Family::gpt2, 0), 3);
  const c10::AutoGradMode no_grad(false);
  const at::Tensor plain = model->logits(ids(1));
  model->set_activation_checkpointing({.enabled = true});
  const LiveBytes bytes;
  const at::Tensor logits = model->logits(ids(1));
  EXPECT_TRUE(logits.equal(plain));
  EXPECT_EQ(bytes.now(), static_cast<int64_t>(logits.nbytes()));
}

TEST(ActivationCheckpointing, TheGraphKeepsTheModelAlive) {
  auto model = make_model(shape(Family::llama, 0), 3);
  model->set_activation_checkpointing({.enabled = true});
  const at::Tensor weight = model->named_parameters()["model.layers.0.mlp.up_proj.weight"];
  const std::weak_ptr<LanguageModel> alive = model;
  at::Tensor loss = model->loss(ids(1), ids(2));
  model.reset();
  EXPECT_FALSE(alive.expired());
  loss.backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(alive.expired());
}

TEST(ActivationCheckpointing, CountsBelowOneAreErrors) {
  const auto model = make_model(shape(Family::gpt2, 0), 3);
  EXPECT_THROW(model->set_activation_checkpointing({.enabled = true, .every = 0}), UsageError);
  EXPECT_THROW(model->set_activation_checkpointing({.enabled = true, .number_checkpoints = 0}), UsageError);
}

// ---- under an engine ----

struct EngineRun {
  Family family = Family::gpt2;
  int stage = 0, world = 1;
  bool bf16 = false;
  double dropout = 0;  // with one rank alone: ranks that are threads share a generator
};

// Rank 0's losses, norms and parameters after three steps of two micro-steps.
Values train(const EngineRun& run, const Settings& settings) {
  Values out;
  seed(4);
  run_ranks(run.world, [&](const Comm& comm) {
    at::set_num_threads(1);
    Config config;
    config.bf16.enabled = run.bf16;
    config.zero.stage = run.stage;
    config.zero.stage3_param_persistence_threshold = 0;
    config.zero.stage3_max_live_parameters = 0;
    config.zero.reduce_bucket_size = 5000;
    config.gradient_accumulation_steps = 2;
    config.train_micro_batch_size_per_gpu = 2;
    config.optimizer = OptimizerConfig{.lr = 1e-2};
    const auto model = make_model(shape(run.family, run.dropout), 3);
    model->set_activation_checkpointing(settings);
    EngineOptions options;
    options.quiet = true;
    Engine engine(parameters_of(*model), config, comm, std::move(options));
    Values own;
    for (int step = 0; step < 3; ++step) {
      for (int j = 0; j < 2; ++j) {
        const auto salt = static_cast<uint64_t>(100 * step + 10 * j + comm.rank());
        engine.backward(model->loss(ids(salt), ids(salt + 1)));
        engine.step();
      }
      own["loss " + std::to_string(step)] = at::full({}, engine.last_step().loss, at::kDouble);
      own["norm " + std::to_string(step)] = at::full({}, engine.global_grad_norm(), at::kDouble);
    }
    for (const std::string& name : engine.names()) own[name] = engine.full_param(name).clone();
    if (comm.rank() == 0) out = own;
  });
  return out;
}

class ActivationCheckpointingStages : public testing::TestWithParam<int> {};

TEST_P(ActivationCheckpointingStages, TrainingIsTheSameBits) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    for (const int world : {1, 2}) {
      for (const bool bf16 : {false, true}) {
        const EngineRun run{family, GetParam(), world, bf16, world == 1 ? 0.2 : 0.0};
        const Values plain = train(run, {});
        expect_equal(plain, train(run, {.enabled = true}), "each block");
        expect_equal(plain, train(run, {.enabled = true, .number_checkpoints = 2}), "two runs");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ActivationCheckpointingStages, testing::Range(0, 4));

}  // namespace
}  // namespace aliquot::test
