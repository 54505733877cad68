// Types, names and spellings of keys.
#include "testing.h"

namespace aliquot {
namespace {

using testing::are;
using testing::errors_of;
using testing::has;
using testing::resolve;
using testing::says;
using testing::with;

Config config_of(const std::string& keys) {
  return resolve(with(keys)).config;
}

// ---- coercions (reference §1.0) ----

TEST(Coercion, IntegersAsDeepSpeedTakesThem) {
  for (const char* v :
       {"500000000", "5e8", "500000000.0", "\"500000000\"", "\"500_000_000\"", "\" 500000000 \""}) {
    const std::string keys = std::string(R"("zero_optimization": {"reduce_bucket_size": )") + v + "}";
    EXPECT_EQ(config_of(keys).zero.reduce_bucket_size, 500'000'000) << v;
  }
  for (const char* v : {"\"5e8\"", "1.5", "null", "Infinity", "NaN", "1e19", "-1", "[]", "{}", "\"\"",
                        "\"1__0\"", "\"_1\"", "\"x\""}) {
    const auto errors =
        errors_of(with(std::string(R"("zero_optimization": {"reduce_bucket_size": )") + v + "}"));
    EXPECT_TRUE(
        are(errors, {"ds.json:1:*zero_optimization.reduce_bucket_size: *expected an integer of at least 1"}))
        << v;
  }
  EXPECT_EQ(config_of(R"("fp16": {"hysteresis": true})").fp16.hysteresis, 1);
}

TEST(Coercion, BooleansAsDeepSpeedTakesThem) {
  for (const char* v : {"true", "1", "1.0", "\"true\"", "\"True\"", "\"yes\"", "\"ON\"", "\"1\""}) {
    EXPECT_TRUE(config_of(std::string(R"("fp16": {"enabled": )") + v + "}").fp16.enabled) << v;
  }
  for (const char* v : {"false", "0", "0.0", "\"false\"", "\"no\"", "\"Off\"", "\"0\""}) {
    EXPECT_FALSE(config_of(std::string(R"("fp16": {"enabled": )") + v + "}").fp16.enabled) << v;
  }
  for (const char* v : {"2", "null", "\"maybe\"", "[]", "0.5"}) {
    EXPECT_TRUE(are(errors_of(with(std::string(R"("fp16": {"enabled": )") + v + "}")), {"fp16.enabled"}))
        << v;
  }
}

TEST(Coercion, StagesAsDeepSpeedTakesThem) {
  const std::vector<std::pair<const char*, int>> stages = {{"0", 0},   {"3", 3},    {"\"2\"", 2},
                                                           {"2.0", 2}, {"true", 1}, {"false", 0}};
  for (const auto& [v, stage] : stages) {
    EXPECT_EQ(config_of(std::string(R"("zero_optimization": {"stage": )") + v + "}").zero.stage, stage) << v;
  }
  for (const char* v : {"4", "-1", "null", "\"auto\"", "1.5"}) {
    EXPECT_TRUE(are(errors_of(with(std::string(R"("zero_optimization": {"stage": )") + v + "}")),
                    {"expected an integer from 0 to 3"}))
        << v;
  }
}

TEST(Coercion, NumbersAndTexts) {
  EXPECT_EQ(config_of(R"("gradient_clipping": "0.5")").gradient_clipping, 0.5);
  for (const char* v : {"true", "\"x\"", "-1", "Infinity", "NaN", "\"inf\"", "null"}) {
    EXPECT_TRUE(are(errors_of(with(std::string(R"("gradient_clipping": )") + v)), {"gradient_clipping"}))
        << v;
  }
  EXPECT_TRUE(are(errors_of(with(R"("tensorboard": {"job_name": 3})")), {"expected text"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "CPU"}})")),
          {"\"CPU\": expected one of none, cpu, nvme"}));
  EXPECT_EQ(config_of(R"("aliquot": {"keep_fp32": ["norm", "router"]})").keep_fp32,
            (std::vector<std::string>{"norm", "router"}));
  EXPECT_TRUE(are(errors_of(with(R"("aliquot": {"keep_fp32": "norm"})")), {"expected a list of texts"}));
}

// ---- names ----

TEST(Names, UnknownKeysAreErrorsWithTheNearestKey) {
  EXPECT_TRUE(are(errors_of(with(R"("gradient_clipp1ng": 1)")),
                  {"ds.json:1:39: gradient_clipp1ng: unknown key; did you mean gradient_clipping?"}));
  EXPECT_TRUE(are(errors_of(with(R"("zero_optimisation": {})")), {"did you mean zero_optimization?"}));
  EXPECT_TRUE(are(errors_of(with(R"("zero_optimization": {"stag": 1})")),
                  {"zero_optimization.stag: unknown key; did you mean zero_optimization.stage?"}));
  EXPECT_TRUE(are(errors_of(with(R"("gradient_predevide_factor": 1)")), {"gradient_predivide_factor"}));
  EXPECT_TRUE(are(errors_of(with(R"("zero_optimization": {"all_contiguous_gradients": true})")),
                  {"contiguous_gradients"}));
  EXPECT_TRUE(are(errors_of(with(R"("qqqqqqqqqqqqq": 1)")), {"ds.json:1:39: qqqqqqqqqqqqq: unknown key"}));
  EXPECT_EQ(errors_of(with("\"" + std::string(5000, 'k') + "\": 1")).size(), 1U);
}

TEST(Names, MisplacedKeysAreToldWhereTheyBelong) {
  EXPECT_TRUE(are(errors_of(with(R"("zero_optimization": {"aio": {"block_size": 1}})")),
                  {"zero_optimization.aio: unknown key; aio belongs at the top level"}));
  EXPECT_TRUE(are(errors_of(with(R"("zero_hpz_partition_size": 8)")), {"belongs in zero_optimization"}));
  EXPECT_TRUE(are(errors_of(with(R"("lr": 1)")), {"lr: unknown key; lr belongs in optimizer.params"}));
  EXPECT_TRUE(are(errors_of(with(R"("enabled": true)")), {"enabled: unknown key"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("bf16": {"enabled": true, "loss_scale": 0})")), {"loss_scale belongs in fp16"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("zero_optimization": {"stage": 3, "offload_optimizer": {"buffer_size": 1}})")),
          {"buffer_size belongs in zero_optimization.offload_param"}));
  EXPECT_TRUE(are(errors_of(with(R"("optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}})")),
                  {"betas is a parameter of Adam, AdamW, Lion, Lamb"}));
}

TEST(Names, AFileOfOtherKeysIsRefusedShortly) {
  std::string text = "{";
  for (int i = 0; i < 20'000; ++i) text += "\"gradient_clip" + std::to_string(i) + "\": 1,";
  try {
    resolve(text + "\"train_batch_size\": 1}");
    FAIL() << "accepted";
  } catch (const ConfigErrors& e) {
    EXPECT_EQ(e.messages().size(), 20'000U);
    EXPECT_LT(std::string(e.what()).size(), 10'000U);
    EXPECT_TRUE(says(e.what(), "and 19950 more"));
  }
}

TEST(Names, LenientTurnsUnknownKeysIntoWarnings) {
  const std::string text = with(R"("gradient_clipp1ng": 3, "zero_optimization": {"aio": {}, "stage": 1})");
  EXPECT_EQ(errors_of(text).size(), 2U);
  const Resolution r = resolve(text, {}, {.lenient = true});
  EXPECT_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_EQ(r.config.zero.stage, 1);
  EXPECT_TRUE(are(r.warnings, {"unknown key, ignored; did you mean gradient_clipping?",
                               "zero_optimization.aio: unknown key, ignored"}));
  EXPECT_EQ(errors_of(with(R"("gradient_clipping": -1, "x": 1)"), {}, {.lenient = true}).size(), 1U);
}

TEST(Names, AllErrorsAtOnceInTheFilesOrder) {
  const auto errors = errors_of(
      "{\n\"train_batch_size\": 0,\n\"zero_optimization\": {\"stage\": 7,\n\"stag\": 1},\n\"optimizer\": "
      "{\"type\": \"Adamm\"}}");
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_TRUE(says(errors[0], "ds.json:2:21: train_batch_size: 0: expected an integer of at least 1"));
  EXPECT_TRUE(says(errors[1], "ds.json:3:32: zero_optimization.stage: 7"));
  EXPECT_TRUE(says(errors[2], "ds.json:4:1: zero_optimization.stag: unknown key"));
  EXPECT_TRUE(says(errors[3], "ds.json:5:23: optimizer.type: \"Adamm\": no such optimizer"));
}

TEST(Names, DuplicatesAreErrorsWithBothPlaces) {
  EXPECT_TRUE(are(errors_of("{\"train_batch_size\": 8,\n\"train_batch_size\": 16}"),
                  {"ds.json:2:1: train_batch_size: given twice, first at 1:2"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("fp16": {"enabled": false, "enabled": false})")), {"fp16.enabled: given twice"}));
}

TEST(Names, AliasesAreTheSameKey) {
  EXPECT_TRUE(config_of(R"("bfloat16": {"enabled": true})").bf16.enabled);
  const Config c =
      config_of(R"("zero_optimization": {"stage": 3, "max_live_parameters": 0, "max_reuse_distance": 0,
      "prefetch_bucket_size": 0, "param_persistence_threshold": 7, "model_persistence_threshold": 9,
      "gather_16bit_weights_on_model_save": true, "sub_group_size": 0})");
  EXPECT_EQ(c.zero.stage3_max_live_parameters, 0);
  EXPECT_EQ(c.zero.stage3_max_reuse_distance, 0);
  EXPECT_EQ(c.zero.stage3_prefetch_bucket_size, 0);
  EXPECT_EQ(c.zero.stage3_param_persistence_threshold, 7);
  EXPECT_EQ(c.zero.stage3_model_persistence_threshold, 9);
  EXPECT_TRUE(c.zero.stage3_gather_16bit_weights_on_model_save);
  EXPECT_EQ(c.zero.sub_group_size, 0);
  EXPECT_TRUE(are(errors_of(with(R"("bf16": {"enabled": true}, "bfloat16": {"enabled": true})")),
                  {"given twice: as bf16 at 1:39 and as bfloat16 here"}));
}

TEST(Names, HjsonIsReadWithOneWarning) {
  const Resolution r =
      resolve("{\n  train_batch_size: 4\n  \"fp16\": {enabled: true}\n  gradient_clipping: 2\n}");
  EXPECT_EQ(r.config.gradient_clipping, 2.0);
  EXPECT_TRUE(are(r.warnings, {"ds.json:2:22: commas are left out and names stand without quotes"}));
}

// ---- deprecated spellings ----

TEST(Deprecated, EachMapsWithOneLine) {
  struct Case {
    const char* keys;
    const char* line;
    bool (*holds)(const Config&);
  };
  const Case cases[] = {
      {R"("zero_optimization": true)", "zero_optimization: deprecated; taken as {\"stage\": 1}",
       [](const Config& c) { return c.zero.stage == 1; }},
      {R"("zero_optimization": false)", "taken as {\"stage\": 0}",
       [](const Config& c) { return c.zero.stage == 0; }},
      {R"("zero_optimization": {"stage": 2, "cpu_offload": true})",
       "cpu_offload: deprecated; taken as zero_optimization.offload_optimizer",
       [](const Config& c) { return c.zero.offload_optimizer.device == OffloadDevice::cpu; }},
      {R"("zero_optimization": {"stage": 3, "cpu_offload_param": true})",
       "taken as zero_optimization.offload_param",
       [](const Config& c) { return c.zero.offload_param.device == OffloadDevice::cpu; }},
      {R"("zero_optimization": {"stage": 3, "cpu_offload_params": true})", "deprecated name",
       [](const Config& c) { return c.zero.offload_param.device == OffloadDevice::cpu; }},
      {R"("zero_optimization": {"cpu_offload_use_pin_memory": false})", "offload_optimizer.pin_memory",
       [](const Config& c) { return !c.zero.offload_optimizer.pin_memory; }},
      {R"("zero_optimization": {"stage": 3, "stage3_gather_fp16_weights_on_model_save": true})",
       "deprecated name", [](const Config& c) { return c.zero.stage3_gather_16bit_weights_on_model_save; }},
      {R"("zero_optimization": true, "allgather_size": 77)",
       "taken as zero_optimization.allgather_bucket_size",
       [](const Config& c) { return c.zero.allgather_bucket_size == 77; }},
      {R"("aio": {"thread_count": 4})", "thread_count is a deprecated name of this key",
       [](const Config&) { return true; }},
      {R"("gradient_clipping": 2.0, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 2.0}})",
       "gradient_clipping says the same", [](const Config& c) { return c.gradient_clipping == 2.0; }},
  };
  for (const Case& c : cases) {
    const Resolution r = resolve(with(c.keys));
    EXPECT_TRUE(has(r.warnings, c.line)) << c.keys;
    EXPECT_TRUE(c.holds(r.config)) << c.keys;
  }
}

TEST(Deprecated, OldAndNewTogetherAreAnError) {
  EXPECT_TRUE(are(
      errors_of(with(
          R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "cpu_offload": true})")),
      {"cpu_offload: deprecated, and zero_optimization.offload_optimizer is given too"}));
  EXPECT_TRUE(are(
      errors_of(with(R"("zero_optimization": {"stage": 3, "stage3_gather_fp16_weights_on_model_save": true,
                             "stage3_gather_16bit_weights_on_model_save": true})")),
      {"given twice"}));
  EXPECT_TRUE(are(
      errors_of(with(
          R"("gradient_clipping": 1.0, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 2.0}})")),
      {"max_grad_norm: 2*it is 1 now"}));
  EXPECT_TRUE(are(errors_of(with(R"("optimizer": {"type": "Adam", "params": {"max_grad_norm": 2.0}})")),
                  {"write \"gradient_clipping\": 2 at the top level"}));
}

// ---- blocks ----

TEST(Blocks, MustBeObjects) {
  for (const char* keys :
       {R"("fp16": true)", R"("zero_optimization": 2)", R"("zero_optimization": null)",
        R"("optimizer": "Adam")", R"("scheduler": [])", R"("zero_optimization": {"offload_param": "none"})",
        R"("tensorboard": 1)", R"("optimizer": {"type": "Adam", "params": null})",
        R"("scheduler": {"type": "WarmupLR", "params": 3})"}) {
    EXPECT_TRUE(are(errors_of(with(keys)), {"expected an object"})) << keys;
  }
  EXPECT_TRUE(has(errors_of("[1]"), "expected an object, { … }, found a list"));
}

TEST(Blocks, NullIsAsIfTheKeyWereNotThere) {
  const Config c = config_of(
      R"("optimizer": null, "scheduler": null, "steps_per_print": null, "communication_data_type": null,
      "zero_optimization": {"offload_param": null, "offload_optimizer": null, "overlap_comm": null},
      "data_types": {"grad_accum_dtype": null}, "gradient_accumulation_steps": null)");
  EXPECT_FALSE(c.optimizer);
  EXPECT_FALSE(c.steps_per_print);
  EXPECT_EQ(c.grad_accum_dtype, DType::fp32);
  EXPECT_EQ(c.zero.offload_param, OffloadConfig{});
  EXPECT_EQ(c.gradient_accumulation_steps, 1);
}

TEST(Blocks, EmptyOffloadBlocksAreOff) {
  const Config c =
      config_of(R"("zero_optimization": {"stage": 0, "offload_param": {}, "offload_optimizer": {}})");
  EXPECT_EQ(c.zero.offload_param.device, OffloadDevice::none);
  EXPECT_EQ(c.zero.offload_optimizer.device, OffloadDevice::none);
}

TEST(Blocks, StepsPerPrintMayBeInfinite) {
  EXPECT_FALSE(config_of(R"("steps_per_print": Infinity)").steps_per_print);
  EXPECT_EQ(config_of(R"("steps_per_print": 1e5)").steps_per_print, 100'000);
  EXPECT_EQ(errors_of(with(R"("steps_per_print": 0)")).size(), 1U);
  EXPECT_EQ(errors_of(with(R"("steps_per_print": -Infinity)")).size(), 1U);
}

TEST(Blocks, MonitorsAreRead) {
  const Config c = config_of(
      R"("tensorboard": {"enabled": true, "output_path": "runs", "job_name": "z3"}, "csv_monitor": {})");
  EXPECT_EQ(c.tensorboard, (MonitorConfig{.enabled = true, .output_path = "runs", .job_name = "z3"}));
  EXPECT_EQ(c.csv_monitor, MonitorConfig{});
}

TEST(Blocks, ActivationCheckpointingIsOnWhereItsBlockIs) {
  using Settings = ActivationCheckpointingConfig;
  const auto settings = [](const std::string& keys) { return config_of(keys).activation_checkpointing; };
  EXPECT_EQ(settings(""), Settings{});
  EXPECT_EQ(settings(R"("activation_checkpointing": {})"), Settings{.enabled = true});
  EXPECT_EQ(settings(R"("activation_checkpointing": {"number_checkpoints": null, "profile": false})"),
            Settings{.enabled = true});
  const Settings runs{.enabled = true, .number_checkpoints = 4};
  EXPECT_EQ(settings(R"("activation_checkpointing": {"number_checkpoints": 4})"), runs);
  const Settings every{.enabled = true, .every = 3};
  EXPECT_EQ(settings(R"("activation_checkpointing": {}, "aliquot": {"checkpoint_every": 3})"), every);
}

TEST(Blocks, ActivationCheckpointingSaysWhatItDoes) {
  const Resolution r = resolve(with(
      R"("activation_checkpointing": {"number_checkpoints": 4, "partition_activations": true, "profile": true,
      "cpu_checkpointing": true, "contiguous_memory_optimization": true, "synchronize_checkpoint_boundary": false})"));
  EXPECT_TRUE(are(r.notes,
                  {"activation_checkpointing: on: built-in models compute blocks again in backward",
                   "partition_activations: no effect here: it splits", "profile: no effect here: metrics",
                   "cpu_checkpointing: no effect here: on a CPU", "contiguous_memory_optimization: no effect",
                   "synchronize_checkpoint_boundary: no effect"}));
  EXPECT_TRUE(are(errors_of(with(R"("activation_checkpointing": {"number_checkpoints": 0})")),
                  {"expected an integer of at least 1"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("activation_checkpointing": {"number_checkpoints": 2},
      "aliquot": {"checkpoint_every": 3})")),
          {"checkpoint_every: 3, and activation_checkpointing.number_checkpoints is 2; give one of them"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("aliquot": {"checkpoint_every": 1})")), {"checkpoint_every: needs the block"}));
}

TEST(Blocks, ActivationCheckpointingFromTheCommandLine) {
  const LoadedConfig loaded = parse_config(with(""), "ds.json");
  const Resolution on = resolve_config(loaded, {.activation_checkpointing = true});
  EXPECT_TRUE(on.config.activation_checkpointing.enabled);
  EXPECT_NE(auto_table(on).find("activation_checkpointing"), std::string::npos);
  EXPECT_FALSE(resolve_config(loaded).config.activation_checkpointing.enabled);
  const LoadedConfig moved =
      parse_config(with(R"("activation_checkpointing": {"cpu_checkpointing": true})"), "ds.json");
  EXPECT_THROW(resolve_config(moved, {.host_is_device = false}), ConfigError);
}

// ---- keys without effect ----

TEST(NoEffect, IsSaid) {
  const Resolution r = resolve(
      with(R"("zero_optimization": {"contiguous_gradients": false, "leaf_module": {"classes": ["a.B"]}},
      "checkpoint": {"tag_validation": "Warn"}, "dump_state": true)"));
  EXPECT_TRUE(are(r.notes, {"contiguous_gradients: no effect here: ", "leaf_module.classes: no effect",
                            "tag_validation: no effect", "dump_state: no effect"}));
  EXPECT_EQ(errors_of(with(R"("zero_optimization": {"contiguous_gradients": 5})")).size(), 1U);
  EXPECT_TRUE(
      are(resolve(with(R"("zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e6})")).notes,
          {"no effect at stage 2: stage3_max_live_parameters"}));
}

}  // namespace
}  // namespace aliquot
