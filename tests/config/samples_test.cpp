// The files of tests/golden/configs: real habits of DeepSpeed users, and files that must be refused.
#include <filesystem>

#include "testing.h"

namespace aliquot {
namespace {

using testing::are;
using testing::golden_path;
using testing::has;
using testing::resolve;
using testing::says;
using testing::world;

Resolution sample(const std::string& name, const RunFacts& facts) {
  return resolve_config(load_config(golden_path("configs/" + name + ".json")), facts);
}

std::vector<std::string> errors_of_sample(const std::string& name, const RunFacts& facts = world(2)) {
  try {
    sample(name, facts);
  } catch (const ConfigErrors& e) {
    return e.messages();
  }
  return {};
}

void expect_batch(const Config& c, int64_t train, int64_t micro, int64_t accumulation) {
  EXPECT_EQ(c.train_batch_size, train);
  EXPECT_EQ(c.train_micro_batch_size_per_gpu, micro);
  EXPECT_EQ(c.gradient_accumulation_steps, accumulation);
}

TEST(Samples, F01Zero1Fp16FixedNumbers) {
  const Config c = sample("01_zero1_fp16_fixed_numbers", world(8)).config;
  expect_batch(c, 2048, 8, 32);
  EXPECT_TRUE(c.fp16.enabled);
  EXPECT_EQ(c.fp16.initial_scale_power, 16);
  EXPECT_EQ(c.fp16.loss_scale, 0);
  EXPECT_EQ(c.zero.stage, 1);
  EXPECT_EQ(c.optimizer->kind, OptimizerKind::adamw);  // `Adam` is AdamW unless adam_w_mode says otherwise
  EXPECT_EQ(c.optimizer->lr, 3e-4);
  EXPECT_EQ(c.optimizer->eps, 1e-6);
  EXPECT_EQ(c.optimizer->weight_decay, 0.01);
  EXPECT_EQ(c.scheduler.kind, SchedulerKind::warmup_decay);
  EXPECT_EQ(c.scheduler.warmup_max_lr, std::vector<double>{3e-4});
  EXPECT_EQ(c.scheduler.warmup_num_steps, 10'000);
  EXPECT_EQ(c.scheduler.total_num_steps, 1'000'000);
  EXPECT_EQ(c.steps_per_print, 100);
}

TEST(Samples, F02Zero2OffloadHfAuto) {
  RunFacts facts = world(2);
  facts.micro_batch = 4;
  facts.lr = 2e-5;
  facts.total_steps = 300;
  const Resolution r = sample("02_zero2_offload_hf_auto", facts);
  expect_batch(r.config, 8, 4, 1);
  EXPECT_TRUE(r.config.bf16.enabled);
  EXPECT_FALSE(r.config.fp16.enabled);
  EXPECT_EQ(r.config.optimizer->lr, 2e-5);
  EXPECT_EQ(r.config.zero.stage, 2);
  EXPECT_EQ(r.config.zero.offload_optimizer.device, OffloadDevice::cpu);
  EXPECT_EQ(r.config.zero.reduce_bucket_size, 200'000'000);
  EXPECT_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_EQ(r.config.scheduler.warmup_num_steps, 30);
  EXPECT_EQ(r.autos.size(), 13U);
  expect_batch(sample("02_zero2_offload_hf_auto", world(2)).config, 2, 1, 1);
}

TEST(Samples, F03Zero3OffloadAllHfAuto) {
  RunFacts facts = world(2);
  facts.hidden_size = 4096;
  facts.total_steps = 1000;
  const Config c = sample("03_zero3_offload_all_hf_auto", facts).config;
  EXPECT_EQ(c.zero.reduce_bucket_size, 4096 * 4096);
  EXPECT_EQ(c.zero.stage3_prefetch_bucket_size, 15'099'494);
  EXPECT_EQ(c.zero.stage3_param_persistence_threshold, 40'960);
  EXPECT_EQ(c.zero.sub_group_size, 1'000'000'000);
  EXPECT_EQ(c.zero.stage3_max_live_parameters, 1'000'000'000);
  EXPECT_EQ(c.scheduler.total_num_steps, 1000);
  EXPECT_TRUE(c.zero.stage3_gather_16bit_weights_on_model_save);
  EXPECT_TRUE(are(errors_of_sample("03_zero3_offload_all_hf_auto"),
                  {"\"auto\" cannot be resolved for scheduler.params.total_num_steps"}));
}

TEST(Samples, F04Zero3NvmeBoth) {
  const LoadedConfig loaded = load_config(golden_path("configs/04_zero3_nvme_both.json"));
  EXPECT_EQ(loaded.draft.fp16.initial_scale_power, 32);
  EXPECT_EQ(loaded.draft.optimizer->lr, 1.5e-4);
  EXPECT_EQ(loaded.draft.scheduler.warmup_max_lr, std::vector<double>{3e-5});
  EXPECT_TRUE(are(loaded.findings.warnings(), {"thread_count is a deprecated name"}));

  const Resolution r = resolve_config(loaded, world(8));
  expect_batch(r.config, 16, 2, 1);
  EXPECT_TRUE(has(r.notes, "3e-05: replaces the optimizer's lr, 0.00015"));
  for (const OffloadConfig& part : {r.config.zero.offload_optimizer, r.config.zero.offload_param}) {
    EXPECT_EQ(part.device, OffloadDevice::nvme);
    EXPECT_EQ(part.nvme_path, std::vector<std::string>{"/local_nvme"});
  }
}

TEST(Samples, F05Zero1Bf16Fp32GradAccum) {
  const Config c = sample("05_zero1_bf16_fp32_grad_accum", world(32)).config;
  expect_batch(c, 1024, 2, 16);
  EXPECT_EQ(c.param_dtype(), DType::bf16);
  EXPECT_EQ(c.grad_accum_dtype, DType::fp32);
  EXPECT_FALSE(c.optimizer);
  EXPECT_EQ(c.steps_per_print, 1);
}

TEST(Samples, F07Zero2LegacyDeprecatedKeys) {
  const Resolution r = sample("07_zero2_legacy_deprecated_keys", world(4));
  expect_batch(r.config, 4, 1, 1);
  EXPECT_EQ(r.config.zero.offload_optimizer.device, OffloadDevice::cpu);
  EXPECT_TRUE(r.config.zero.offload_optimizer.pin_memory);
  EXPECT_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_EQ(r.config.fp16.initial_scale_power, 16);
  EXPECT_EQ(r.config.optimizer->beta2, 0.95);
  EXPECT_TRUE(r.config.wall_clock_breakdown);
  EXPECT_TRUE(are(r.warnings, {"max_grad_norm: deprecated", "cpu_offload: deprecated",
                               "cpu_offload_use_pin_memory: deprecated"}));
}

TEST(Samples, F08Zero3Fp16AutoWithBf16True) {
  RunFacts facts = world(2);
  facts.hidden_size = 768;
  const Config c = sample("08_zero3_fp16auto_with_bf16_true", facts).config;
  EXPECT_FALSE(c.fp16.enabled);
  EXPECT_TRUE(c.bf16.enabled);
  EXPECT_EQ(c.zero.stage, 3);
  EXPECT_EQ(c.zero.reduce_bucket_size, 768 * 768);
  EXPECT_TRUE(c.zero.stage3_gather_16bit_weights_on_model_save);
  EXPECT_EQ(c.steps_per_print, 100'000);
}

TEST(Samples, F09HjsonCommentsTrailingCommas) {
  const Resolution r = sample("09_hjson_comments_trailing_commas", world(2));
  expect_batch(r.config, 32, 1, 16);
  EXPECT_EQ(r.config.optimizer->lr, 5e-7);
  EXPECT_TRUE(r.config.scheduler.warmup_max_lr.empty());
  EXPECT_EQ(r.config.scheduler.warmup_num_steps, 1);
  EXPECT_TRUE(has(r.notes, "the warm-up ends at the optimizer's lr, 5e-07"));
}

TEST(Samples, F11Zero3MoeLeafModules) {
  const Resolution r = sample("11_zero3_moe_leaf_modules", world(2));
  expect_batch(r.config, 4, 2, 1);
  EXPECT_EQ(r.config.scheduler.kind, SchedulerKind::warmup_cosine);
  EXPECT_EQ(r.config.scheduler.cos_min_ratio, 0.001);
  EXPECT_EQ(r.config.scheduler.warmup_type, WarmupType::linear);
  EXPECT_EQ(r.config.zero.stage3_param_persistence_threshold, 100'000);
  EXPECT_TRUE(has(r.notes, "leaf_module.classes: no effect here"));
}

TEST(Samples, F12Zero3MultinodeHpzMonitoring) {
  EXPECT_TRUE(
      are(errors_of_sample("12_zero3_multinode_hpz_monitoring", world(16)),
          {"zero_hpz_partition_size: 8: not supported", "comms_logger.enabled: true: not supported"}));
  const Config c = load_config(golden_path("configs/12_zero3_multinode_hpz_monitoring.json")).draft;
  EXPECT_EQ(c.train_batch_size / c.train_micro_batch_size_per_gpu / 16, 16);
  EXPECT_EQ(c.communication_data_type, DType::bf16);
  EXPECT_EQ(c.tensorboard, (MonitorConfig{.enabled = true, .output_path = "runs", .job_name = "z3"}));
  EXPECT_TRUE(c.csv_monitor.enabled);
}

TEST(Samples, F14Zero2SingleGpuLowMemory) {
  const Config c = sample("14_zero2_single_gpu_low_memory", world(1)).config;
  expect_batch(c, 8, 2, 4);
  EXPECT_EQ(c.zero.reduce_bucket_size, 5'000'000);
  EXPECT_EQ(c.zero.allgather_bucket_size, 5'000'000);
  EXPECT_FALSE(c.zero.overlap_comm);
}

// ---- habits whose files are described, not kept ----

TEST(Samples, UnprefixedKeysAndZeroValues) {
  const Config c =
      resolve(
          R"({"zero_optimization": {"stage": 3, "overlap_comm": true, "sub_group_size": 0, "max_live_parameters": 0,
      "max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0, "gather_16bit_weights_on_model_save": true},
      "bf16": {"enabled": true}, "fp16": {"enabled": "auto", "auto_cast": false}, "train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})",
          world(2))
          .config;
  EXPECT_EQ(c.zero.stage3_max_live_parameters, 0);
  EXPECT_EQ(c.zero.sub_group_size, 0);
  EXPECT_EQ(c.zero.stage3_prefetch_bucket_size, 0);
}

TEST(Samples, ResolvedByAFrontEndWithInfinity) {
  const Config c =
      resolve(
          R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
      "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "nvme_path": null},
      "offload_param": {"device": "none", "nvme_path": null}, "stage3_gather_16bit_weights_on_model_save": false},
      "gradient_clipping": 1.0, "steps_per_print": Infinity, "bf16": {"enabled": true}, "fp16": {"enabled": false},
      "zero_allow_untested_optimizer": true})",
          world(8))
          .config;
  expect_batch(c, 64, 1, 8);
  EXPECT_FALSE(c.steps_per_print);
}

TEST(Samples, MisspeltKeyOfAnRlhfFile) {
  const std::string text =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
      "offload_param": {"device": "none"}, "stage3_max_live_parameters": 3e7, "memory_efficient_linear": false},
      "gradient_predevide_factor": 1.0, "hybrid_engine": {"enabled": false}})";
  EXPECT_TRUE(are(testing::errors_of(text, world(8)), {"did you mean gradient_predivide_factor?"}));
  expect_batch(resolve(text, world(8), {.lenient = true}).config, 64, 1, 8);
}

// ---- bad files ----

TEST(BadSamples, EachIsRefusedByName) {
  const std::pair<const char*, const char*> files[] = {
      {"b1_typo_top_level", ":10:3: gradient_clipp1ng: unknown key; did you mean gradient_clipping?"},
      {"b2_bucket_zero",
       ":12:27: zero_optimization.reduce_bucket_size: 0: expected an integer of at least 1"},
      {"b3_batch_mismatch", ":10:23: 16 != 2 × 1 × 2"},
      {"b5_fp16_and_bf16_both_true", ":14:16: bf16.enabled: true, and fp16.enabled is true too"},
      {"b6_nvme_without_path", "offload_optimizer.nvme_path: missing; device \"nvme\" needs a folder"},
      {"b8_aio_nested_in_zero", ":19:5: zero_optimization.aio: unknown key; aio belongs at the top level"},
      {"b11_duplicate_key", ":3:3: train_batch_size: given twice, first at 2:3"},
  };
  for (const auto& [name, error] : files) {
    EXPECT_TRUE(
        has(errors_of_sample(std::string("bad/") + name), std::string(name) + "*" + std::string(error)))
        << name;
  }
}

// b12's batch is right on one and two ranks; on four the accumulation would be zero.
TEST(BadSamples, FloorDivisionGivesZeroAccumulation) {
  EXPECT_TRUE(are(errors_of_sample("bad/b12_floor_division_gives_zero_accum", world(4)),
                  {"8 != 4 × 0 × 4*16 = 4 × 1 × 4"}));
  expect_batch(sample("bad/b12_floor_division_gives_zero_accum", world(2)).config, 8, 4, 1);
}

// b9: DeepSpeed fails on "auto" here with a TypeError; clipping has a default, so the table says what it
// became.
TEST(BadSamples, UnresolvedAutoHasADefaultHere) {
  const Resolution r = sample("bad/b9_unresolved_auto", world(2));
  EXPECT_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_TRUE(says(auto_table(r), "gradient_clipping  1.0     the default"));
}

TEST(Samples, ResolvedAgainGiveTheSameConfig) {
  RunFacts facts;
  facts.hidden_size = 1024;
  facts.total_steps = 1000;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("configs"))) {
    if (!entry.is_regular_file()) continue;
    for (const int ranks : {1, 2, 4, 8, 32}) {
      facts.world_size = ranks;
      Config config;
      try {
        config = resolve_config(load_config(entry.path()), facts).config;
      } catch (const ConfigErrors&) {
        continue;
      }
      ++files;
      const Resolution again = resolve(resolved_json(config), facts);
      EXPECT_EQ(again.config, config) << entry.path();
      EXPECT_TRUE(again.autos.empty()) << entry.path();
      EXPECT_EQ(resolved_json(again.config), resolved_json(config));
    }
  }
  EXPECT_GT(files, 25);
}

}  // namespace
}  // namespace aliquot
