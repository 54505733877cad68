#include "aliquot/optim/optimizer.h"

#include "aliquot/error.h"
#include "testing.h"

namespace aliquot {
namespace {

OptimizerConfig of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

using Names = std::vector<std::string>;

TEST(Optimizer, StatesHaveTheirNames) {
  EXPECT_EQ(moment_names(of(OptimizerKind::adam)), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(moment_names(of(OptimizerKind::adamw)), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(moment_names(of(OptimizerKind::lamb)), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(moment_names(of(OptimizerKind::lion)), Names{"exp_avg"});
  EXPECT_EQ(moment_names(of(OptimizerKind::adagrad)), Names{"sum"});
  EXPECT_EQ(moment_names(of(OptimizerKind::sgd)), Names{});
  OptimizerConfig sgd = of(OptimizerKind::sgd);
  sgd.momentum = 0.9;
  EXPECT_EQ(moment_names(sgd), Names{"momentum_buffer"});
  EXPECT_EQ(moment_count(sgd), 1);
}

TEST(Optimizer, OnlyAdagradStartsElsewhereThanZero) {
  OptimizerConfig config = of(OptimizerKind::adagrad);
  config.initial_accumulator_value = 0.5;
  EXPECT_EQ(initial_moment(config), 0.5F);
  config.kind = OptimizerKind::adamw;
  EXPECT_EQ(initial_moment(config), 0);
}

// Every kind reaches its own kernel: the results of one step differ from each other.
TEST(Optimizer, EveryKindIsDispatched) {
  std::vector<float> results;
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::sgd,
                                   OptimizerKind::lion, OptimizerKind::adagrad}) {
    float p = 1, m = 0.25F, v = 0.5F;
    const float g = 0.125F;
    update(of(kind), {.master = &p, .grad = &g, .moment1 = &m, .moment2 = &v, .n = 1},
           {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 2});
    for (const float other : results) EXPECT_NE(p, other);
    results.push_back(p);
  }
  float p = 1;
  EXPECT_THROW(update(of(OptimizerKind::lamb), {.master = &p, .n = 1}, {}), InternalError);
}

TEST(Optimizer, AdagradsRateDecaysWithItsSteps) {
  OptimizerConfig config = of(OptimizerKind::adagrad);
  config.lr_decay = 0.5;
  for (const int64_t step : {1, 3}) {
    float p = 0, sum = 0;
    const float g = 2;
    update(config, {.master = &p, .grad = &g, .moment1 = &sum, .n = 1}, {.lr = 0.5, .step = step});
    EXPECT_EQ(p, step == 1 ? -0.5F : -0.25F);
  }
}

// OneCycle's decay_mom_rate raises beta1 without end; the moment must not explode unnoticed.
TEST(Optimizer, ABetaBeyondOneIsAnErrorWhereItIsUsed) {
  float p = 1, m = 0, v = 0;
  const float g = 1;
  const kernels::Slice slice{.master = &p, .grad = &g, .moment1 = &m, .moment2 = &v, .n = 1};
  EXPECT_THROW(update(of(OptimizerKind::adamw), slice, {.lr = 0.1, .beta1 = 1.02, .beta2 = 0.99}),
               UsageError);
  EXPECT_THROW(update(of(OptimizerKind::lion), slice, {.lr = 0.1, .beta1 = 0.9, .beta2 = 1}), UsageError);
  EXPECT_EQ(p, 1);
  EXPECT_NO_THROW(update(of(OptimizerKind::sgd), slice, {.lr = 0.1, .beta1 = 1.02}));
}

TEST(Optimizer, TrustRatioIsClampedAndOneWhereANormIsZero) {
  const OptimizerConfig lamb = of(OptimizerKind::lamb);
  EXPECT_EQ(lamb_trust_ratio(lamb, {4, 16}), 0.5);
  EXPECT_EQ(lamb_trust_ratio(lamb, {1e8, 1}), 10);
  EXPECT_EQ(lamb_trust_ratio(lamb, {1, 1e8}), 0.01);
  EXPECT_EQ(lamb_trust_ratio(lamb, {0, 1}), 1);
  EXPECT_EQ(lamb_trust_ratio(lamb, {1, 0}), 1);
}

}  // namespace
}  // namespace aliquot
