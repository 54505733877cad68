// "auto", what the command line supplies, and the table of both.
#include "testing.h"

namespace aliquot {
namespace {

using testing::are;
using testing::errors_of;
using testing::resolve;
using testing::says;
using testing::with;
using testing::world;

// "value by rule" of one key in the table; empty if it is not there.
std::string told(const Resolution& r, const std::string& path) {
  for (const AutoValue& a : r.autos) {
    if (a.path == path) return a.value + " by " + a.rule;
  }
  return "";
}

TEST(Auto, BatchSizes) {
  const std::string open =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  Resolution r = resolve(open, world(2));
  EXPECT_EQ(r.config.train_batch_size, 2);
  EXPECT_EQ(r.config.train_micro_batch_size_per_gpu, 1);
  EXPECT_TRUE(says(told(r, "train_micro_batch_size_per_gpu"), "1 by \"auto\": the smallest"));
  EXPECT_EQ(told(r, "train_batch_size"), "2 by derived: 1 × 1 × 2");

  RunFacts facts = world(2);
  facts.micro_batch = 4;
  facts.accumulation = 3;
  r = resolve(open, facts);
  EXPECT_EQ(r.config.train_batch_size, 24);
  EXPECT_EQ(told(r, "train_micro_batch_size_per_gpu"), "4 by command line");
  EXPECT_EQ(told(r, "gradient_accumulation_steps"), "3 by command line");

  r = resolve(
      R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4})",
      world(2));
  EXPECT_EQ(r.config.train_micro_batch_size_per_gpu, 4);
  facts = world(2);
  facts.train_batch = 12;
  EXPECT_EQ(resolve("{}", facts).config.train_micro_batch_size_per_gpu, 6);
  EXPECT_TRUE(are(errors_of("{}", world(2)), {"is needed"}));
}

TEST(Auto, Precision) {
  const auto precision = [](const std::string& keys) { return resolve(with(keys)).config.param_dtype(); };
  EXPECT_EQ(precision(R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"})"), DType::bf16);
  EXPECT_EQ(precision(R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": true})"), DType::fp16);
  EXPECT_EQ(precision(R"("bf16": {"enabled": true}, "fp16": {"enabled": "auto"})"), DType::bf16);
  EXPECT_EQ(precision(R"("bf16": {"enabled": false}, "fp16": {"enabled": "auto"})"), DType::fp32);
  EXPECT_EQ(precision(R"("fp16": {"enabled": "auto"})"), DType::fp32);
}

TEST(Auto, BucketSizesFollowTheHiddenSize) {
  const std::string text = with(
      R"("zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "param_persistence_threshold": "auto", "stage3_max_live_parameters": "auto", "sub_group_size": "auto", "overlap_comm": "auto",
      "stage3_gather_16bit_weights_on_model_save": "auto"})");
  RunFacts facts;
  facts.hidden_size = 5120;
  const Resolution r = resolve(text, facts);
  EXPECT_EQ(r.config.zero.reduce_bucket_size, 26'214'400);
  EXPECT_EQ(r.config.zero.stage3_prefetch_bucket_size, 23'592'960);
  EXPECT_EQ(r.config.zero.stage3_param_persistence_threshold, 51'200);
  EXPECT_EQ(told(r, "zero_optimization.reduce_bucket_size"), "26214400 by hidden², hidden size 5120");
  EXPECT_EQ(told(r, "zero_optimization.stage3_max_live_parameters"), "1000000000 by the default");
  EXPECT_EQ(told(r, "zero_optimization.stage3_gather_16bit_weights_on_model_save"), "false by the default");
  EXPECT_EQ(told(r, "zero_optimization.overlap_comm"), "true by true at stage 3 only");

  const Resolution bare = resolve(text);
  EXPECT_EQ(bare.config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(told(bare, "zero_optimization.reduce_bucket_size"), "500000000 by the default");
}

TEST(Auto, HyperparametersAndClipping) {
  const std::string text = with(
      R"("gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
      "eps": "auto", "weight_decay": "auto"}})");
  const Resolution bare = resolve(text);
  EXPECT_EQ(bare.config.gradient_clipping, 1.0);
  EXPECT_EQ(bare.config.optimizer->lr, 1e-3);
  EXPECT_EQ(told(bare, "optimizer.params.betas"), "[0.9,0.999] by the default");
  RunFacts facts;
  facts.lr = 3e-4;
  facts.weight_decay = 0.1;
  facts.gradient_clipping = 0.5;
  const Resolution r = resolve(text, facts);
  EXPECT_EQ(r.config.optimizer->lr, 3e-4);
  EXPECT_EQ(r.config.optimizer->weight_decay, 0.1);
  EXPECT_EQ(r.config.gradient_clipping, 0.5);
  EXPECT_EQ(told(r, "optimizer.params.lr"), "0.0003 by command line");
}

TEST(Auto, SchedulerTotals) {
  const std::string text =
      with(R"("optimizer": {"type": "Adam", "params": {"lr": 2e-4}}, "scheduler": {"type": "WarmupDecayLR",
      "params": {"total_num_steps": "auto", "warmup_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto"}})");
  EXPECT_TRUE(are(errors_of(text), {"\"auto\" cannot be resolved for scheduler.params.total_num_steps"}));
  RunFacts facts;
  facts.total_steps = 500;
  Resolution r = resolve(text, facts);
  EXPECT_EQ(r.config.scheduler.total_num_steps, 500);
  EXPECT_EQ(r.config.scheduler.warmup_num_steps, 50);
  EXPECT_TRUE(r.config.scheduler.warmup_max_lr.empty());
  EXPECT_TRUE(says(told(r, "scheduler.params.warmup_max_lr"), "0.0002 by the optimizer's lr"));
  EXPECT_EQ(told(r, "scheduler.params.total_num_steps"), "500 by steps of the run");
  facts.warmup_steps = 7;
  EXPECT_EQ(resolve(text, facts).config.scheduler.warmup_num_steps, 7);
}

// A run may be shorter than the schedule it follows.
TEST(Auto, StepsOfTheRunDoNotReplaceTheFiles) {
  RunFacts facts;
  facts.total_steps = 10;
  const Config c =
      resolve(with(R"("scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000}})"), facts)
          .config;
  EXPECT_EQ(c.scheduler.total_num_steps, 1000);
}

TEST(Auto, IsRefusedWhereNothingCanResolveIt) {
  for (const char* keys : {R"("zero_optimization": {"stage": "auto"})", R"("optimizer": {"type": "auto"})",
                           R"("prescale_gradients": "auto")",
                           R"("zero_optimization": {"stage": 3, "offload_param": {"device": "auto"}})"}) {
    EXPECT_TRUE(are(errors_of(with(keys)), {"\"auto\": "})) << keys;
  }
}

TEST(Auto, TheTableHasOneLineEach) {
  const Resolution r = resolve(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "gradient_clipping": "auto"})",
      world(2));
  EXPECT_EQ(auto_table(r),
            "auto                         became  by\n"
            "train_batch_size             4       derived: 2 × 1 × 2\n"
            "gradient_clipping            1.0     the default\n"
            "gradient_accumulation_steps  1       default\n");
  EXPECT_EQ(
      auto_table(resolve(
          R"({"train_batch_size": 2, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1})")),
      "");
}

// user-pains L5: a value with two owners is a conflict, never a silent preference.
TEST(Supplied, TwoValuesForOneKeyAreAConflict) {
  RunFacts facts = world(1);
  facts.gradient_clipping = 0.5;
  EXPECT_TRUE(are(errors_of(with(R"("gradient_clipping": 1.0)"), facts),
                  {"gradient_clipping: 1 here, but 0.5 on the command line; give it in one place"}));
  EXPECT_TRUE(are(errors_of(with(R"("gradient_clipping": 0.5)"), facts), {}));
  EXPECT_EQ(resolve(with(R"("fp16": {})"), facts).config.gradient_clipping, 0.5);
  facts.micro_batch = 2;
  facts.lr = 1e-4;
  EXPECT_TRUE(are(errors_of(with(R"("optimizer": {"type": "Adam", "params": {"lr": 1e-3}})"), facts),
                  {"train_micro_batch_size_per_gpu: 1 here, but 2", "optimizer.params.lr: 0.001 here"}));
  EXPECT_TRUE(are(errors_of("{\"train_batch_size\": 2}", facts), {"optimizer: missing"}));
}

TEST(Supplied, TheCommandLineKeepsTheSchemasRanges) {
  RunFacts facts = world(1);
  facts.lr = -1.0;
  facts.micro_batch = 0;
  EXPECT_TRUE(are(errors_of(R"({"optimizer": {"type": "Adam"}})", facts),
                  {"train_micro_batch_size_per_gpu: 0 on the command line: expected an integer of at least 1",
                   "optimizer.params.lr: -1 on the command line: expected a number of at least 0"}));
}

// user-pains J3: without a peak the warm-up ends at the optimizer's lr, not at DeepSpeed's 0.001.
TEST(Warmup, ThePeakIsTheOptimizersLr) {
  const std::string start =
      R"("optimizer": {"type": "AdamW", "params": {"lr": 5e-7}}, "scheduler": {"type": )";
  for (const char* rest : {R"("WarmupLR", "params": {"warmup_num_steps": 1}})",
                           R"("WarmupDecayLR", "params": {"warmup_num_steps": 1, "total_num_steps": 9}})"}) {
    const Resolution r = resolve(with(start + rest));
    EXPECT_TRUE(r.config.scheduler.warmup_max_lr.empty());
    EXPECT_TRUE(are(r.notes, {"warmup_max_lr: not given: the warm-up ends at the optimizer's lr, 5e-07"}));
  }
  EXPECT_TRUE(are(resolve(with(start + R"("WarmupLR", "params": {"warmup_max_lr": 3e-5}})")).notes,
                  {"warmup_max_lr: 3e-05: replaces the optimizer's lr, 5e-07"}));
  EXPECT_TRUE(are(
      resolve(with(start + R"("WarmupDecayLR", "params": {"warmup_num_steps": 9, "total_num_steps": 5}})"))
          .warnings,
      {"total_num_steps: 5 is below warmup_num_steps, 9"}));
}

TEST(Groups, ListsHaveOneValuePerGroup) {
  const std::string two = with(
      R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [0.0001, 1e-5], "cycle_max_lr": 0.01,
      "cycle_min_mom": [0.8, 0.7]}})");
  RunFacts facts;
  EXPECT_EQ(resolve(two, facts).config.scheduler.cycle_min_mom, (std::vector<double>{0.8, 0.7}));
  facts.param_groups = 2;
  EXPECT_TRUE(are(errors_of(two, facts), {}));
  facts.param_groups = 1;
  EXPECT_TRUE(are(errors_of(two, facts), {"cycle_min_lr: 2 values", "cycle_min_mom: 2 values"}));
  EXPECT_TRUE(are(
      errors_of(with(
          R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [1, 2], "cycle_max_lr": [1, 2, 3]}})")),
      {"cycle_max_lr: 3 values; expected one, or one for each of the 2 parameter groups"}));
}

TEST(Checked, ConfigsMadeByHand) {
  Config c;
  c.train_micro_batch_size_per_gpu = 3;
  c.zero.stage = 2;
  EXPECT_EQ(checked(c, 2).train_batch_size, 6);
  c.zero.reduce_bucket_size = 0;
  c.fp16.enabled = c.bf16.enabled = true;
  try {
    checked(c, 2);
    FAIL() << "accepted";
  } catch (const ConfigErrors& e) {
    EXPECT_TRUE(are(e.messages(), {"configuration:*bf16.enabled", "reduce_bucket_size: 0"}));
  }
}

}  // namespace
}  // namespace aliquot
