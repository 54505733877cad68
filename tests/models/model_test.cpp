#include "aliquot/models/model.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "aliquot/error.h"
#include "tests/support/formula.h"

namespace aliquot::test {
namespace {

constexpr int64_t kVocab = 97;

ModelConfig small(Family family) {
  ModelConfig c;
  c.family = family;
  c.vocab_size = kVocab;
  c.context = 32;
  c.layers = 2;
  c.hidden = 32;
  c.heads = 4;
  c.kv_heads = family == Family::gpt2 ? 4 : 2;
  c.head_dim = 8;
  c.intermediate = 48;
  c.tied_head = family == Family::gpt2;
  c.qkv_bias = family == Family::qwen2;
  if (family == Family::mistral) c.sliding_window = 5;
  return c;
}

const Family kFamilies[] = {Family::gpt2, Family::llama, Family::mistral, Family::qwen2};

at::Tensor some_ids() {
  return integers({2, 16}, 1, kVocab);
}

std::map<std::string, at::Tensor> gradients(LanguageModel& model, double scale = 1.0) {
  model.zero_grad();
  (model.loss(some_ids(), integers({2, 16}, 2, kVocab)) * scale).backward();
  std::map<std::string, at::Tensor> out;
  for (const auto& item : model.named_parameters())
    out[item.key()] = item.value().grad().to(at::kDouble) / scale;
  return out;
}

TEST(Model, InitialValuesDependOnSeedAndNameAlone) {
  ModelConfig config = load_model_config("gpt2-tiny");
  config.vocab_size = 64;
  const auto a = make_model(config, 7), b = make_model(config, 7), c = make_model(config, 8);
  config.layers = 2;
  const auto shallow = make_model(config, 7);
  const auto weight = [](LanguageModel& m) {
    return m.named_parameters()["transformer.h.1.mlp.c_fc.weight"];
  };
  EXPECT_TRUE(weight(*a).equal(weight(*b)));
  EXPECT_FALSE(weight(*a).equal(weight(*c)));
  EXPECT_TRUE(weight(*a).equal(weight(*shallow)));
  EXPECT_FALSE(weight(*a).equal(a->named_parameters()["transformer.h.0.mlp.c_fc.weight"]));
}

TEST(Model, InitialValuesAreDistributedAsInTransformers) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    ModelConfig config = load_model_config(family == Family::gpt2 ? "gpt2-tiny" : "llama-tiny");
    config.vocab_size = 512;
    config.init_std = 0.05;
    if (family == Family::llama) config.pad_token_id = 3;
    const auto model = make_model(config, 11);
    for (const auto& item : model->named_parameters()) {
      const at::Tensor p = item.value();
      if (p.dim() == 1) {
        EXPECT_TRUE(p.eq(item.key().ends_with("bias") ? 0.0 : 1.0).all().item<bool>()) << item.key();
        continue;
      }
      const bool narrow = family == Family::gpt2 && item.key().ends_with("c_proj.weight");
      const double std = narrow ? 0.05 / std::sqrt(8.0) : 0.05;
      // Five standard errors of a normal sample's deviation and mean.
      const double error = 5 * std / std::sqrt(static_cast<double>(p.numel()));
      EXPECT_NEAR(p.std().item<double>(), std, error) << item.key();
      EXPECT_NEAR(p.mean().item<double>(), 0, error) << item.key();
    }
    if (family == Family::llama) {
      EXPECT_EQ(model->named_parameters()["model.embed_tokens.weight"][3].norm().item<double>(), 0);
    }
  }
}

TEST(Model, LossIsTheCrossEntropyOfTheLogits) {
  for (const Family family : kFamilies) {
    const auto model = make_model(small(family), 3);
    const at::Tensor targets = integers({2, 16}, 2, kVocab);
    const double loss = model->loss(some_ids(), targets).item<double>();
    const at::Tensor logits = model->logits(some_ids());
    const at::Tensor chosen = logits.log_softmax(-1).gather(2, targets.unsqueeze(2));
    EXPECT_NEAR(loss, -chosen.mean().item<double>(), 1e-6);
    EXPECT_NEAR(loss, std::log(static_cast<double>(kVocab)), 0.1);
  }
}

// A position's logits depend on what lies before it, and in Mistral on no more than the window.
TEST(Model, PositionsSeeThePastAlone) {
  for (const Family family : kFamilies) {
    ModelConfig config = small(family);
    config.layers = 1;
    const auto model = make_model(config, 3);
    const at::Tensor ids = some_ids(), logits = model->logits(ids);
    at::Tensor changed = ids.clone();
    changed[0][8] = (changed[0][8].item<int64_t>() + 1) % kVocab;
    const at::Tensor moved = (model->logits(changed) - logits)[0].abs().amax(-1);
    for (int64_t t = 0; t < 16; ++t) {
      const bool sees = t >= 8 && (family != Family::mistral || t < 8 + 5);
      EXPECT_EQ(moved[t].item<double>() > 0, sees) << t;
    }
  }
}

TEST(Model, RunsIn16Bits) {
  for (const Family family : kFamilies) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      const auto wide = make_model(small(family), 5), narrow = make_model(small(family), 5);
      narrow->to(type);
      EXPECT_EQ(narrow->logits(some_ids()).scalar_type(), type);
      const at::Tensor loss = narrow->loss(some_ids(), some_ids());
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      EXPECT_NEAR(loss.item<double>(), wide->loss(some_ids(), some_ids()).item<double>(), 0.01);
      auto expected = gradients(*wide);
      for (const auto& [name, gradient] : gradients(*narrow, 1024)) {
        EXPECT_LT((gradient - expected[name]).norm().item<double>(),
                  0.05 * expected[name].norm().item<double>() + 1e-4)
            << name;
      }
    }
  }
}

// An engine moves a gradient away when it is delivered: a second delivery would come too late.
TEST(Model, EachParameterGetsOneGradientPerBackward) {
  for (const Family family : kFamilies) {
    for (const bool tied : {false, true}) {
      ModelConfig config = small(family);
      config.tied_head = tied;
      const auto model = make_model(config, 3);
      std::map<std::string, int> deliveries;
      for (const auto& item : model->named_parameters()) {
        item.value().register_hook(
            [&deliveries, name = item.key()](const at::Tensor&) { ++deliveries[name]; });
      }
      model->loss(some_ids(), some_ids()).backward();
      EXPECT_EQ(deliveries.size(), model->parameters().size());
      for (const auto& [name, n] : deliveries) EXPECT_EQ(n, 1) << name;
    }
  }
}

TEST(Model, DropoutActsInTrainingAlone) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    for (double ModelConfig::*dropout :
         {&ModelConfig::resid_dropout, &ModelConfig::embd_dropout, &ModelConfig::attn_dropout}) {
      if (family == Family::llama && dropout != &ModelConfig::attn_dropout) continue;
      ModelConfig config = small(family);
      const auto plain = make_model(config, 3);
      config.*dropout = 0.3;
      const auto model = make_model(config, 3);
      const c10::AutoGradMode no_grad(false);
      EXPECT_TRUE(plain->logits(some_ids()).equal(plain->logits(some_ids())));
      const auto drawn = [&](uint64_t seed) {
        at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
        generator.set_current_seed(seed);
        return model->logits(some_ids());
      };
      EXPECT_TRUE(drawn(1).equal(drawn(1)));
      EXPECT_FALSE(drawn(1).equal(drawn(2)));
      model->eval();
      EXPECT_TRUE(drawn(1).equal(plain->logits(some_ids())));
    }
  }
}

TEST(Model, ThePaddingTokensEmbeddingIsNotTrained) {
  ModelConfig config = small(Family::llama);
  config.pad_token_id = some_ids()[0][0].item<int64_t>();
  const auto model = make_model(config, 3);
  const at::Tensor gradient = gradients(*model)["model.embed_tokens.weight"];
  EXPECT_EQ(gradient[*config.pad_token_id].norm().item<double>(), 0);
  EXPECT_GT(gradient[some_ids()[0][1].item<int64_t>()].norm().item<double>(), 0);
}

TEST(Model, InputsThatDoNotFitAreErrors) {
  for (const Family family : kFamilies) {
    const auto model = make_model(small(family), 1);
    EXPECT_THROW(model->logits(at::zeros({1, 33}, at::kLong)), UsageError);
    EXPECT_THROW(model->logits(at::zeros({5}, at::kLong)), UsageError);
    EXPECT_ANY_THROW(model->logits(at::zeros({1, 5}, at::kLong).add(kVocab)));
  }
}

}  // namespace
}  // namespace aliquot::test
