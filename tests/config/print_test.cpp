#include "aliquot/config/print.h"

#include "testing.h"

namespace aliquot {
namespace {

using testing::resolve;
using testing::says;
using testing::with;

void expect_round_trip(const std::string& keys) {
  const Config config = resolve(with(keys)).config;
  EXPECT_EQ(resolve(resolved_json(config)).config, config) << resolved_json(config);
}

TEST(ResolvedJson, EveryOptimizer) {
  for (
      const char* params :
      {R"("Adam", "params": {"lr": 0.1, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.1, "bias_correction": false})",
       R"("adam", "params": {"adam_w_mode": false})", R"("ADAMW", "params": {"adam_w_mode": false})",
       R"("Adam", "params": {"torch_adam": true})", R"("Lion", "params": {"lr": 1e-4})",
       R"("SGD", "params": {"momentum": 0.9, "nesterov": true, "weight_decay": 1e-4})",
       R"("SGD", "params": {"dampening": 0.3})",
       R"("Adagrad", "params": {"lr_decay": 0.1, "initial_accumulator_value": 0.5})",
       R"("Lamb", "params": {"max_coeff": 5, "min_coeff": 0.1, "eps_inside_sqrt": true})"}) {
    expect_round_trip(std::string("\"optimizer\": {\"type\": ") + params + "}");
  }
}

TEST(ResolvedJson, EverySchedule) {
  for (
      const char* params :
      {R"("WarmupLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": [0.1, 0.2], "warmup_type": "linear"})",
       R"("WarmupDecayLR", "params": {"total_num_steps": 1000})",
       R"("WarmupCosineLR", "params": {"total_num_steps": 5000, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2})",
       R"("OneCycle", "params": {"cycle_min_lr": [0.1, 0.2], "cycle_max_lr": 1, "cycle_second_step_size": 0, "cycle_second_stair_count": 3,
           "cycle_first_stair_count": -1, "cycle_momentum": false, "cycle_min_mom": [0.7, 0.8], "decay_step_size": 2.5})",
       R"("LRRangeTest", "params": {"lr_range_test_min_lr": 0.1, "lr_range_test_staircase": true})"}) {
    expect_round_trip(std::string("\"scheduler\": {\"type\": ") + params + "}");
  }
}

TEST(ResolvedJson, EveryOtherKey) {
  expect_round_trip(R"("gradient_clipping": 0, "gradient_allreduce_op": "sum", "prescale_gradients": true,
      "gradient_predivide_factor": 4, "communication_data_type": "fp32", "data_types": {"grad_accum_dtype": "bf16", "buffer_dtype": "fp16"},
      "steps_per_print": 7, "wall_clock_breakdown": true, "tensorboard": {"enabled": true, "output_path": "a\"ü"},
      "csv_monitor": {"job_name": "x"}, "activation_checkpointing": {"number_checkpoints": 6}, "aliquot": {"keep_fp32": ["norm", "bias"], "replica_check_interval": 7},
      "fp16": {"enabled": true, "loss_scale": 0.5, "initial_scale_power": 3, "loss_scale_window": 4, "hysteresis": 5,
               "consecutive_hysteresis": true, "min_loss_scale": 2}, "bf16": {"check_grad_overflow": false})");
  expect_round_trip(
      R"("zero_optimization": {"stage": 3, "reduce_bucket_size": 1, "allgather_bucket_size": 2, "overlap_comm": false,
      "round_robin_gradients": true, "sub_group_size": 1e14, "stage3_max_live_parameters": 0,
      "stage3_max_reuse_distance": 1, "stage3_prefetch_bucket_size": 2, "stage3_param_persistence_threshold": 3,
      "stage3_model_persistence_threshold": 4, "stage3_gather_16bit_weights_on_model_save": true,
      "offload_optimizer": {"device": "cpu", "pin_memory": false, "ratio": 0.25}, "offload_param": {"device": "cpu"}})");
}

TEST(ResolvedJson, SelectiveCheckpointing) {
  expect_round_trip(R"("activation_checkpointing": {}, "aliquot": {"checkpoint_every": 2})");
}

TEST(ResolvedJson, ShowsDefaultsAndIsOrdered) {
  const std::string json = resolved_json(resolve(with(R"("zero_optimization": {"stage": 3})")).config);
  EXPECT_TRUE(json.starts_with("{\n  \"train_batch_size\": 1,\n  \"train_micro_batch_size_per_gpu\": 1,\n"));
  EXPECT_TRUE(says(json, "\"overlap_comm\": true"));
  EXPECT_TRUE(says(json, "\"stage3_model_persistence_threshold\": 9223372036854775807"));
  EXPECT_TRUE(says(json, "\"grad_accum_dtype\": \"fp32\""));
}

TEST(ResolvedJson, AKindFilledInByHandGetsItsName) {
  Config c;
  c.train_batch_size = 1;
  c.optimizer = OptimizerConfig{.kind = OptimizerKind::sgd};
  EXPECT_TRUE(says(resolved_json(c), "\"type\": \"SGD\""));
}

TEST(ValueText, FindsValuesAndDefaults) {
  const Config c = resolve(with(R"("optimizer": {"type": "Adam"})")).config;
  EXPECT_EQ(value_text(c, "zero_optimization.stage"), "0");
  EXPECT_EQ(value_text(c, "optimizer.params.betas"), "[0.9,0.999]");
  EXPECT_EQ(value_text(c, "zero_optimization.contiguous_gradients"), "true");
  EXPECT_EQ(value_text(c, "zero_optimization.stage.x"), "?");
}

TEST(NotesText, ListsWarningsThenNotes) {
  const Resolution r = resolve(with(R"("dump_state": true, "zero_optimization": true)"));
  EXPECT_EQ(notes_text(r),
            "warning: ds.json:1:80: zero_optimization: deprecated; taken as {\"stage\": 1}\n"
            "note: ds.json:1:39: dump_state: no effect here: the start-up summary and config.json always "
            "show the resolved configuration\n");
}

}  // namespace
}  // namespace aliquot
