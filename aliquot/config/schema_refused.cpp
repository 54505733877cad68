// Blocks and keys of DeepSpeed that ask for something that is not here. Switched off they are welcome.
#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

// A block whose `enabled` decides.
Section switched(std::string path, std::string because, std::vector<Key> keys) {
  Section s{.path = std::move(path), .types = {}, .keys = {}};
  s.keys.push_back(refused(boolean("enabled", "false"), because, {false}));
  for (Key& key : keys) s.keys.push_back(off(std::move(key)));
  return s;
}

Section elasticity() {
  return switched("elasticity", "the world size is fixed for a run",
                  {
                      integer("max_train_batch_size", "2000").in(at_least(1)),
                      anything("micro_batch_sizes", "[2, 4, 6]"),
                      integer("min_gpus", "1").in(at_least(1)),
                      integer("max_gpus", "10000").in(at_least(1)),
                      integer("min_time", "0").in(at_least(0)),
                      boolean("prefer_larger_batch", "true"),
                      boolean("ignore_non_elastic_batch_info", "false"),
                      number("version", "0.2"),
                      integer("model_parallel_size", "1").in(at_least(1)),
                      integer("num_gpus_per_node", "1").in(at_least(1)),
                  });
}

Section autotuning() {
  return switched("autotuning", "planning without relaunching the job is a later part",
                  {
                      boolean("fast", "true"),
                      text("results_dir", "\"autotuning_results\""),
                      text("exps_dir", "\"autotuning_exps\""),
                      boolean("overwrite", "true"),
                      integer("start_profile_step", "3"),
                      integer("end_profile_step", "5"),
                      choice("metric", {"throughput", "latency", "flops"}, "throughput"),
                      choice("tuner_type", {"gridsearch", "random", "model_based"}, "gridsearch"),
                      integer("tuner_early_stopping", "5"),
                      integer("tuner_num_trials", "50"),
                      anything("arg_mappings", "none"),
                      integer("min_train_batch_size", "1"),
                      integer("max_train_batch_size", "none").or_null(),
                      integer("mp_size", "1"),
                      integer("num_tuning_micro_batch_sizes", "3"),
                      integer("min_train_micro_batch_size_per_gpu", "1"),
                      integer("max_train_micro_batch_size_per_gpu", "1024"),
                  });
}

Section compile() {
  Section s{.path = "compile", .types = {}, .keys = {}};
  s.keys = {refused(boolean("deepcompile", "false"), "nothing is compiled at run time", {false})};
  for (const char* name :
       {"free_activation", "offload_activation", "offload_opt_states", "offload_parameters", "double_buffer",
        "symmetric_memory", "debug_log", "sync_before_reduce", "sync_after_reduce", "sync_before_allgather",
        "sync_after_allgather", "keep_int_input_tensors", "keep_all_input_tensors"}) {
    s.keys.push_back(off(boolean(name, name == std::string("double_buffer") ? "true" : "false")));
  }
  s.keys.push_back(off(anything("passes", "none")));
  return s;
}

Section tensor_parallel() {
  Section s{.path = "tensor_parallel", .types = {}, .keys = {}};
  s.keys = {
      refused(integer("autotp_size", "0"), "only data parallelism is here", {int64_t{0}, int64_t{1}}),
      off(boolean("tp_overlap_comm", "false")),
      off(anything("partition_config", "none")),
      off(text("preset_model", "none").or_null()),
  };
  return s;
}

}  // namespace

std::vector<Key> refused_top_keys() {
  std::vector<Key> keys = {
      refused(boolean("managed_gradient_accumulation", "true"),
              "accumulation is counted by the engine; use gradient_accumulation_steps", {true}),
      refused(integer("sequence_parallel_size", "1"), "only data parallelism is here", {int64_t{1}}),
      refused(boolean("sparse_gradients", "false"), "embedding gradients are dense", {false}),
      refused(boolean("disable_allgather", "false"), "updated parameters are always published", {false}),
      refused(boolean("graph_harvesting", "false"), "CUDA graphs are not there", {false}),
      refused(anything("pipeline", "none"), "only data parallelism is here", {}),
  };
  for (const char* name :
       {"flops_profiler", "comms_logger", "wandb", "comet", "amp", "torch_autocast", "progressive_layer_drop",
        "elasticity", "autotuning", "compile", "tensor_parallel"}) {
    keys.push_back(block(name, "refused while it is on"));
  }
  struct Whole {
    const char* name;
    const char* because;
  };
  for (const Whole& w :
       std::initializer_list<Whole>{{"eigenvalue", "out of scope"},
                                    {"sparse_attention", "attention is the model's own"},
                                    {"hybrid_engine", "there is no generation engine"},
                                    {"curriculum_learning", "the data order is fixed by seed and step"},
                                    {"data_efficiency", "the data order is fixed by seed and step"},
                                    {"compression_training", "out of scope"},
                                    {"expert_parallel", "only data parallelism is here"},
                                    {"nebula", "a service of one provider"},
                                    {"datastates", "checkpoints to resume from are not written yet"},
                                    {"weight_quantization", "out of scope"}}) {
    keys.push_back(refused(anything(w.name, "none"), w.because, {}));
  }
  return keys;
}

std::vector<Section> refused_sections() {
  return {
      switched(
          "flops_profiler", "the cost of an operation is not counted yet",
          {number("recompute_fwd_factor", "0.0"), integer("profile_step", "1"), integer("module_depth", "-1"),
           integer("top_modules", "1"), boolean("detailed", "true"), text("output_file", "none").or_null()}),
      switched("comms_logger",
               "a table of single collectives is not there yet; metrics.jsonl has their bytes",
               {boolean("verbose", "false"), boolean("prof_all", "true"), boolean("debug", "false"),
                texts("prof_ops", "[]")}),
      switched("wandb", "the service is not spoken to; tensorboard and csv_monitor are there",
               {text("group", "none").or_null(), text("team", "none").or_null(),
                text("project", "\"deepspeed\"")}),
      switched("comet", "the service is not spoken to; tensorboard and csv_monitor are there",
               {integer("samples_log_interval", "100"), text("project", "none").or_null(),
                text("workspace", "none").or_null(), text("api_key", "none").or_null(),
                text("experiment_name", "none").or_null(), text("experiment_key", "none").or_null(),
                boolean("online", "none").or_null(), text("mode", "none").or_null()}),
      switched("amp", "NVIDIA apex is not there; use bf16 or fp16",
               {text("opt_level", "\"O1\""), anything("loss_scale", "\"dynamic\""),
                anything("keep_batchnorm_fp32", "none")}),
      switched("torch_autocast", "the model computes in the dtype of its parameters; use bf16 or fp16",
               {dtype("dtype", "none").or_null(), texts("lower_precision_safe_modules", "[]")}),
      switched("progressive_layer_drop", "every layer runs in every step",
               {number("theta", "1.0"), number("gamma", "0.001")}),
      elasticity(),
      autotuning(),
      compile(),
      tensor_parallel(),
  };
}

}  // namespace aliquot::schema
