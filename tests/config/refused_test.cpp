// What is not here is refused with a reason, and what contradicts itself is named.
#include "aliquot/config/coerce.h"
#include "testing.h"

namespace aliquot {
namespace {

using testing::are;
using testing::errors_of;
using testing::resolve;
using testing::says;
using testing::with;

TEST(Refused, FeaturesThatAreNotHere) {
  for (const char* keys : {R"("zero_optimization": {"zero_hpz_partition_size": 8})",
                           R"("zero_optimization": {"zero_quantized_weights": true})",
                           R"("zero_optimization": {"zero_quantized_nontrainable_weights": true})",
                           R"("zero_optimization": {"zero_quantized_gradients": true})",
                           R"("zero_optimization": {"zeropp_loco_param": {"err_beta": 0.8}})",
                           R"("zero_optimization": {"mics_shard_size": 2})",
                           R"("zero_optimization": {"mics_hierarchical_params_gather": true})",
                           R"("zero_optimization": {"zenflow": {"topk_ratio": 0.1}})",
                           R"("zero_optimization": {"legacy_stage1": true})",
                           R"("zero_optimization": {"ignore_unused_parameters": false})",
                           R"("zero_optimization": {"offload_optimizer": {"super_offload": true}})",
                           R"("amp": {"enabled": true})",
                           R"("pipeline": {"stages": 2})",
                           R"("tensor_parallel": {"autotp_size": 2})",
                           R"("compile": {"deepcompile": true})",
                           R"("torch_autocast": {"enabled": true})",
                           R"("elasticity": {"enabled": true})",
                           R"("autotuning": {"enabled": true})",
                           R"("sparse_gradients": true)",
                           R"("wandb": {"enabled": true})",
                           R"("comet": {"enabled": "yes"})",
                           R"("hybrid_engine": {"enabled": true})",
                           R"("comms_logger": {"enabled": true})",
                           R"("flops_profiler": {"enabled": true})",
                           R"("sequence_parallel_size": 2)",
                           R"("managed_gradient_accumulation": false)",
                           R"("disable_allgather": true)",
                           R"("graph_harvesting": true)",
                           R"("progressive_layer_drop": {"enabled": true})",
                           R"("eigenvalue": {"enabled": true})",
                           R"("sparse_attention": {"mode": "fixed"})",
                           R"("curriculum_learning": {"enabled": true})",
                           R"("data_efficiency": {"enabled": true})",
                           R"("compression_training": {"x": {"shared_parameters": {"enabled": true}}})",
                           R"("fp16": {"auto_cast": true})",
                           R"("fp16": {"fp16_master_weights_and_grads": true})",
                           R"("bf16": {"bf16_master_weights_and_grads": true})",
                           R"("bf16": {"enabled": false, "bf16_optimizer_states": true})",
                           R"("bf16": {"enabled": true, "bf16_optimizer_states": true},
                              "optimizer": {"type": "Lamb", "params": {"lr": 1}})",
                           R"("aio": {"use_gds": true})",
                           R"("checkpoint": {"load_universal": true})"}) {
    EXPECT_TRUE(are(errors_of(with(keys)), {": "})) << keys;
  }
  EXPECT_TRUE(are(errors_of(with(R"("zero_optimization": {"zero_hpz_partition_size": 8})")),
                  {"zero_hpz_partition_size: 8: not supported: a secondary partition"}));
}

TEST(Refused, SwitchedOffTheyAreWelcome) {
  for (
      const char* keys :
      {R"("comms_logger": {"enabled": false, "verbose": true})",
       R"("flops_profiler": {"enabled": false, "profile_step": 3})", R"("comms_logger": {})",
       R"("amp": {"enabled": false})", R"("elasticity": {"enabled": false, "version": 0.1})",
       R"("wandb": {"enabled": false})", R"("hybrid_engine": {"enabled": false, "max_out_tokens": 512})",
       R"("compression_training": {"x": {"shared_parameters": {"enabled": false}}})",
       R"("sequence_parallel_size": 1)",
       R"("zero_optimization": {"zero_hpz_partition_size": 1, "zero_quantized_weights": false, "mics_shard_size": -1,
              "zenflow": null, "zeropp_loco_param": null, "legacy_stage1": false})",
       R"("tensor_parallel": {"autotp_size": 1})", R"("curriculum_learning": {"enabled": false})",
       R"("pipeline": {})"}) {
    EXPECT_TRUE(are(errors_of(with(keys)), {})) << keys;
  }
  EXPECT_TRUE(resolve(with(R"("comms_logger": {"enabled": false, "verbose": true})")).notes.empty());
  EXPECT_TRUE(are(errors_of(with(R"("comms_logger": {"enabled": false, "verbos": true})")),
                  {"did you mean comms_logger.verbose?"}));
}

TEST(Refused, Optimizers) {
  const auto error = [](const std::string& type) {
    const auto errors = errors_of(with(R"("optimizer": {"type": ")" + type + "\"}"));
    return errors.size() == 1 ? errors.front() : "";
  };
  for (const char* type : {"OneBitAdam", "onebitadam", "ZeroOneAdam", "OneBitLamb"}) {
    EXPECT_TRUE(says(error(type), "not supported: compressed communication")) << type;
  }
  EXPECT_TRUE(says(error("Muon"), "whole matrices"));
  EXPECT_TRUE(says(error("MuAdam"), "mup"));
  EXPECT_TRUE(says(error("NAdam"), "torch.optim.NAdam is not there"));
  EXPECT_TRUE(says(error("Adamm"), "did you mean Adam?"));
  EXPECT_TRUE(says(error("sgd"), "did you mean SGD?"));
  EXPECT_TRUE(are(errors_of(with(R"("optimizer": {"params": {}})")), {"optimizer.type: missing"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("optimizer": {"type": "Adam", "params": {"amsgrad": true}})")), {"AMSGrad"}));
  EXPECT_TRUE(
      are(errors_of(with(R"("optimizer": {"type": "SGD", "params": {"maximize": true}})")), {"minimised"}));
}

TEST(Refused, Schedules) {
  EXPECT_TRUE(
      are(errors_of(with(R"("scheduler": {"type": "warmuplr", "params": {}})")), {"did you mean WarmupLR?"}));
  EXPECT_TRUE(are(errors_of(with(R"("scheduler": {"type": "StepLR", "params": {}})")),
                  {"torch's own are not supported"}));
  EXPECT_TRUE(are(errors_of(with(R"("scheduler": {"type": "OneCycle"})")),
                  {"cycle_min_lr: missing", "cycle_max_lr: missing"}));
  EXPECT_TRUE(are(errors_of(with(R"("scheduler": {"type": "WarmupLR"})")), {}));
}

// ---- contradictions ----

TEST(Contradiction, Precision) {
  EXPECT_TRUE(are(errors_of(with(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})")),
                  {"bf16.enabled: true, and fp16.enabled is true too"}));
  // Reference §5.2 case 9.
  const auto param_dtype = [](const std::string& dtype, const std::string& on) {
    return errors_of(with("\"data_types\": {\"param_dtype\": \"" + dtype + "\"}" +
                          (on.empty() ? "" : ", \"" + on + "\": {\"enabled\": true}")));
  };
  for (const auto& [dtype, on] :
       {std::pair("fp16", "bf16"), {"fp32", "bf16"}, {"bf16", "fp16"}, {"bf16", ""}}) {
    EXPECT_TRUE(are(param_dtype(dtype, on), {"data_types.param_dtype: "})) << dtype << " " << on;
  }
  EXPECT_TRUE(are(param_dtype("torch.bfloat16", "bf16"), {}));
  EXPECT_TRUE(are(param_dtype("half", "fp16"), {}));
  EXPECT_TRUE(are(param_dtype("float", ""), {}));
  EXPECT_EQ(resolve(with(R"("data_types": {"buffer_dtype": "bf16"})")).config.buffer_dtype, DType::bf16);
}

// Reference §5.2 case 10 lists what DeepSpeed cannot combine; here every pair works.
TEST(Contradiction, EveryAccumulatorWorksWithEveryPrecisionAndStage) {
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* precision : {"", R"("fp16": {"enabled": true},)", R"("bf16": {"enabled": true},)"}) {
      for (const char* accumulator : {"null", "\"fp16\"", "\"bf16\"", "\"fp32\""}) {
        EXPECT_TRUE(are(
            errors_of(with(std::string(precision) + "\"data_types\": {\"grad_accum_dtype\": " + accumulator +
                           "}, \"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}")),
            {}));
      }
    }
  }
}

TEST(Contradiction, Offload) {
  const auto zero = [](const std::string& keys) {
    return errors_of(with("\"zero_optimization\": {" + keys + "}"));
  };
  EXPECT_TRUE(are(zero(R"("stage": 2, "offload_param": {"device": "cpu"})"),
                  {"offload_param.device: \"cpu\" with stage 2; expected stage 3"}));
  EXPECT_TRUE(are(zero(R"("stage": 0, "offload_optimizer": {"device": "cpu"})"),
                  {"offload_optimizer.device: \"cpu\" with stage 0; expected stage 1 or higher"}));
  EXPECT_TRUE(are(zero(R"("stage": 2, "cpu_offload_param": true)"), {"offload_param: \"cpu\" with stage 2"}));
  EXPECT_TRUE(are(zero(R"("stage": 0, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"})"),
                  {"\"nvme\" with stage 0; expected stage 1 or higher"}));
  EXPECT_TRUE(are(zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": null})"),
                  {"offload_param.nvme_path: missing; device \"nvme\" needs a folder"}));
  EXPECT_TRUE(are(zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": [1]})"),
                  {"nvme_path: [1]: expected text, or a list of texts"}));
  EXPECT_TRUE(are(errors_of(with(R"("optimizer": {"type": "Lamb", "params": {"lr": 1}},
                    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"}})")),
                  {"offload_optimizer.device: \"nvme\" is not supported with Lamb"}));
  EXPECT_TRUE(are(zero(R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.3})"),
                  {"ratio: 0.3 with stage 2"}));
  EXPECT_TRUE(
      are(zero(R"("stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 1.3})"), {"from 0 to 1"}));
  EXPECT_TRUE(are(zero(R"("stage": 9, "offload_param": {"device": "cpu"})"), {"stage: 9"}));
  EXPECT_TRUE(are(
      zero(
          R"("stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu", "ratio": 0.3})"),
      {}));
  EXPECT_TRUE(are(zero(R"("stage": 2, "offload_param": {"device": "none"})"), {}));
}

TEST(Contradiction, HostOffloadIsNotedOnACpuAndRefusedWithAnAccelerator) {
  const std::string text =
      with(R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})");
  EXPECT_TRUE(are(resolve(text).notes, {"no effect here: on a CPU everything is in host memory already"}));
  RunFacts facts;
  facts.host_is_device = false;
  EXPECT_TRUE(are(errors_of(text, facts), {"\"cpu\": not supported yet with an accelerator"}));
}

// Reference §5.2 case 3.
TEST(Contradiction, AllreduceOp) {
  EXPECT_EQ(resolve(with(R"("fp16": {})")).config.gradient_allreduce_op, AllreduceOp::mean);
  EXPECT_EQ(resolve(with(R"("gradient_allreduce_op": "SUM")")).config.gradient_allreduce_op,
            AllreduceOp::sum);
  EXPECT_TRUE(are(errors_of(with(R"("gradient_allreduce_op": "max")")), {"expected one of mean, sum"}));
  EXPECT_TRUE(are(errors_of(with(R"("gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3})")),
                  {"not supported with ZeRO stage 3"}));
  EXPECT_TRUE(are(
      errors_of(with(
          R"("gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}})")),
      {"zenflow: not supported"}));
}

// Reference §5.2 case 5.
TEST(Contradiction, LossScale) {
  const auto fp16 = [](const std::string& keys) { return errors_of(with("\"fp16\": {" + keys + "}")); };
  for (const char* v : {"-1", "Infinity", "NaN", "true", "[]", "{}", "\"x\""}) {
    EXPECT_TRUE(are(fp16(std::string("\"enabled\": true, \"loss_scale\": ") + v),
                    {"expected a number of at least 0"}))
        << v;
  }
  for (const char* v : {"0", "1", "2.0", "\"3\""}) {
    EXPECT_TRUE(are(fp16(std::string("\"loss_scale\": ") + v), {})) << v;
  }
  for (const char* key : {"loss_scale_window", "min_loss_scale"}) {
    const std::string quoted = std::string("\"") + key + "\": ";
    for (const char* v : {"0", "-1"}) {
      EXPECT_TRUE(are(fp16("\"enabled\": true, " + quoted + v), {key})) << v;
      EXPECT_TRUE(are(fp16("\"enabled\": true, \"loss_scale\": 128, " + quoted + v), {})) << v;
      EXPECT_TRUE(are(fp16("\"enabled\": false, " + quoted + v), {})) << v;
    }
    for (const char* v : {"true", "false", "Infinity", "NaN", "\"abc\"", "null"}) {
      EXPECT_TRUE(are(fp16(quoted + v), {key})) << v;
    }
  }
}

TEST(Contradiction, Hyperparameters) {
  const auto params = [](const std::string& type, const std::string& keys) {
    return errors_of(with("\"optimizer\": {\"type\": \"" + type + "\", \"params\": {" + keys + "}}"));
  };
  EXPECT_TRUE(are(params("SGD", R"("nesterov": true)"), {"expected a momentum above 0 and no dampening"}));
  EXPECT_TRUE(are(params("SGD", R"("nesterov": true, "momentum": 0.9)"), {}));
  EXPECT_EQ(params("SGD", R"("nesterov": true, "momentum": 0.9, "dampening": 0.1)").size(), 1U);
  EXPECT_TRUE(are(params("Lamb", R"("min_coeff": 2, "max_coeff": 1)"), {"expected at most max_coeff, 1"}));
  EXPECT_EQ(params("Adam", R"("lr": -1, "betas": [0.9, 1], "eps": -1, "weight_decay": -0.1)").size(), 4U);
  EXPECT_TRUE(are(params("Adam", R"("betas": [0.9])"), {"a list of two numbers"}));
  EXPECT_TRUE(are(errors_of(with(R"("gradient_predivide_factor": 0)")), {"a number above 0"}));
}

TEST(Contradiction, TagValidation) {
  EXPECT_TRUE(
      are(errors_of(with(R"("checkpoint": {"tag_validation": "foo"})")), {"one of Warn, Ignore, Fail"}));
  EXPECT_TRUE(are(errors_of(with(R"("checkpoint": {"tag_validation": "FAIL"})")), {}));
}

TEST(Off, IsRecognised) {
  const auto off = [](const std::string& text) { return schema::is_off(json::read(text, "f").root); };
  for (const char* text :
       {"null", "false", "{}", R"({"enabled": false, "x": 1})", R"({"a": {"enabled": 0}, "b": {}})"}) {
    EXPECT_TRUE(off(text)) << text;
  }
  for (const char* text : {"true", "1", "[]", R"({"x": 1})", R"({"enabled": "yes"})",
                           R"({"a": {"enabled": false}, "b": {"enabled": true}})"}) {
    EXPECT_FALSE(off(text)) << text;
  }
}

}  // namespace
}  // namespace aliquot
