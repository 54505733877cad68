// The top level, precision, monitors and the small blocks.
#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

Section top() {
  Section s{.path = "", .types = {}, .keys = {}};
  s.keys = {
      integer("train_batch_size", "micro-batch × accumulation × world",
              "samples of one optimizer step, over all ranks", to(&Config::train_batch_size))
          .in(at_least(1))
          .or_auto()
          .or_null(),
      integer("train_micro_batch_size_per_gpu", "derived", "samples of one forward on one rank",
              to(&Config::train_micro_batch_size_per_gpu))
          .in(at_least(1))
          .or_auto()
          .or_null(),
      integer("gradient_accumulation_steps", "derived, else 1", "micro-batches of one optimizer step",
              to(&Config::gradient_accumulation_steps))
          .in(at_least(1))
          .or_auto()
          .or_null(),
      block("optimizer", "the optimizer; without it the program brings its own").or_null(),
      block("scheduler", "the learning-rate schedule; without it the rate is constant").or_null(),
      block("fp16", "mixed precision in fp16, with loss scaling"),
      block("bf16", "mixed precision in bf16").also({"bfloat16"}),
      block("zero_optimization", "ZeRO: what is partitioned, and where it lives"),
      number("gradient_clipping", "1.0", "largest global L2 norm of the gradients; 0: no clipping",
             to(&Config::gradient_clipping))
          .in(at_least(0))
          .or_auto(),
      choice("gradient_allreduce_op", {"mean", "sum"}, "mean",
             "whether gradients are averaged or added over ranks", to(&Config::gradient_allreduce_op))
          .in_any_case(),
      boolean("prescale_gradients", "false", "divide by the world size before gradients travel in 16 bits",
              to(&Config::prescale_gradients)),
      number("gradient_predivide_factor", "1.0",
             "divide by it before gradients travel in 16 bits, and multiply afterwards",
             to(&Config::gradient_predivide_factor))
          .in(above(0)),
      dtype("communication_data_type", "the gradient's own", "round gradients to it before they travel",
            to(&Config::communication_data_type))
          .or_auto()
          .or_null(),
      block("data_types", "dtypes of accumulators and buffers"),
      integer("steps_per_print", "never", "print a line every so many steps", to(&Config::steps_per_print))
          .in(at_least(1))
          .or_auto()
          .or_null()
          .or_infinity(),
      boolean("wall_clock_breakdown", "false", "time of forward, backward and step in monitors and progress",
              to(&Config::wall_clock_breakdown)),
      block("tensorboard", "scalars for TensorBoard"),
      block("csv_monitor", "scalars as CSV files, one a metric"),
      block("aliquot", "what DeepSpeed has no key for"),

      block("activation_checkpointing",
            "built-in models keep the inputs of their blocks alone, and compute the rest again in backward",
            [](Config& c, const Scalar&) { c.activation_checkpointing.enabled = true; }),
      block("aio", "reads and writes of NVMe offload"),
      block("checkpoint", "checkpoints to resume from"),
      block("timers", "DeepSpeed's throughput timer"),
      no_effect(boolean("dump_state", "false"),
                "the start-up summary and config.json always show the resolved configuration"),
      no_effect(boolean("memory_breakdown", "false"),
                "every record of metrics.jsonl holds memory by kind and place"),
      no_effect(boolean("dataloader_drop_last", "false"), "the sampler never makes a smaller last batch"),
      no_effect(text("log_level", "none").or_null(), "there is one level: what needs attention is printed"),
      no_effect(integer("vocabulary_size", "none").or_null(),
                "DeepSpeed only warns where it is no multiple of 8"),
      no_effect(boolean("zero_allow_untested_optimizer", "false"),
                "every optimizer here is tested with every stage"),
      no_effect(boolean("zero_force_ds_cpu_optimizer", "true"), "there is one kernel per optimizer"),
      no_effect(dtype("seq_parallel_communication_data_type", "fp32"), "there is no sequence parallelism"),
      integer("allgather_size", "5e8", "elements of one gather",
              to(&Config::zero, &ZeroConfig::allgather_bucket_size))
          .in(at_least(1))
          .instead_use("zero_optimization.allgather_bucket_size"),
  };
  return s;
}

Section fp16() {
  Section s{.path = "fp16", .types = {}, .keys = {}};
  s.keys = {
      boolean("enabled", "false", "compute in fp16; \"auto\" is false",
              to(&Config::fp16, &Fp16Config::enabled))
          .or_auto(),
      number("loss_scale", "0", "a fixed loss scale; 0: dynamic", to(&Config::fp16, &Fp16Config::loss_scale))
          .in(at_least(0))
          .or_auto(),
      integer("initial_scale_power", "16", "the dynamic scale starts at 2 to this power",
              to(&Config::fp16, &Fp16Config::initial_scale_power))
          .in(between(0, 127))
          .or_auto(),
      integer("loss_scale_window", "1000",
              "steps without overflow before the scale doubles; at least 1 where the scale is dynamic",
              to(&Config::fp16, &Fp16Config::loss_scale_window))
          .or_auto()
          .not_boolean(),
      integer("hysteresis", "2", "overflows before the scale halves",
              to(&Config::fp16, &Fp16Config::hysteresis))
          .in(at_least(1))
          .or_auto(),
      boolean("consecutive_hysteresis", "false", "any step without overflow refills the hysteresis",
              to(&Config::fp16, &Fp16Config::consecutive_hysteresis))
          .or_auto(),
      integer("min_loss_scale", "1",
              "the dynamic scale never falls below; at least 1 where the scale is dynamic",
              to(&Config::fp16, &Fp16Config::min_loss_scale))
          .or_auto()
          .not_boolean(),
      refused(boolean("auto_cast", "false").or_auto(),
              "a model's inputs are left as they are: cast them in forward", {false}),
      refused(boolean("fp16_master_weights_and_grads", "false").or_auto(), "master weights are fp32 for now",
              {false}),
  };
  return s;
}

Section bf16() {
  Section s{.path = "bf16", .types = {}, .keys = {}};
  s.keys = {
      boolean("enabled", "false", "compute in bf16; \"auto\" is true unless fp16 is on",
              to(&Config::bf16, &Bf16Config::enabled))
          .or_auto(),
      boolean("check_grad_overflow", "true", "skip a step whose gradients are not finite",
              to(&Config::bf16, &Bf16Config::check_grad_overflow))
          .or_auto(),
      no_effect(boolean("immediate_grad_update", "false").or_auto(),
                "gradients always leave as soon as they are ready"),
      refused(boolean("bf16_master_weights_and_grads", "false").or_auto(), "master weights are fp32 for now",
              {false}),
      boolean("bf16_optimizer_states", "false", "moments are bf16, rounded stochastically; masters stay fp32",
              to(&Config::bf16, &Bf16Config::optimizer_states))
          .or_auto(),
  };
  return s;
}

Section data_types() {
  Section s{.path = "data_types", .types = {}, .keys = {}};
  s.keys = {
      dtype("grad_accum_dtype", "fp32", "dtype of accumulated gradients and gradient shards",
            to(&Config::grad_accum_dtype))
          .or_auto()
          .or_null(),
      dtype("param_dtype", "that of fp16 and bf16", "must agree with fp16.enabled and bf16.enabled")
          .or_auto()
          .or_null(),
      dtype("buffer_dtype", "unchanged", "cast floating-point buffers to it", to(&Config::buffer_dtype))
          .or_auto()
          .or_null(),
  };
  return s;
}

Section monitor(std::string name, MonitorConfig Config::*part) {
  Section s{.path = std::move(name), .types = {}, .keys = {}};
  s.keys = {
      boolean("enabled", "false", "write it", to(part, &MonitorConfig::enabled)),
      text("output_path", "\"\"", "folder", to(part, &MonitorConfig::output_path)),
      text("job_name", "\"DeepSpeedJobName\"", "folder below it", to(part, &MonitorConfig::job_name)),
  };
  return s;
}

Section aliquot_block() {
  Section s{.path = "aliquot", .types = {}, .keys = {}};
  s.keys = {
      texts("keep_fp32", "[]", "parameters whose name holds one of these stay fp32 in a 16-bit model",
            to(&Config::keep_fp32)),
      integer("replica_check_interval", "100",
              "steps between comparisons of what the ranks hold alike (stages 0 to 2); 0: never",
              to(&Config::replica_check_interval))
          .in(at_least(0)),
      integer("checkpoint_every", "1",
              "with `activation_checkpointing`: of the blocks, only every so many-th",
              to(&Config::activation_checkpointing, &ActivationCheckpointingConfig::every))
          .in(at_least(1)),
  };
  return s;
}

Section activation_checkpointing() {
  Section s{.path = "activation_checkpointing", .types = {}, .keys = {}};
  s.keys = {
      integer("number_checkpoints", "one a block",
              "checkpoints of a forward: the blocks in so many runs of nearly equal length, each kept by its "
              "input",
              to(&Config::activation_checkpointing, &ActivationCheckpointingConfig::number_checkpoints))
          .in(at_least(1))
          .or_null(),
      no_effect(boolean("cpu_checkpointing", "false"),
                "on a CPU what a checkpoint keeps is in host memory already"),
      no_effect(
          boolean("partition_activations", "false"),
          "it splits what the ranks of tensor parallelism hold alike; data-parallel ranks have inputs of "
          "their own"),
      no_effect(boolean("contiguous_memory_optimization", "false"),
                "a checkpoint's inputs are kept where they are, not copied, so they fill no gaps"),
      no_effect(boolean("synchronize_checkpoint_boundary", "false"),
                "on a CPU an operation is done when it returns"),
      no_effect(boolean("profile", "false"),
                "metrics.jsonl has the time of forward and of backward, what is computed again included"),
  };
  return s;
}

Section aio() {
  const auto part = &Config::aio;
  Section s{.path = "aio", .types = {}, .keys = {}};
  s.keys = {
      integer("block_size", "1048576", "bytes of one read or write", to(part, &AioConfig::block_size))
          .in(at_least(4096)),
      integer("queue_depth", "8", "reads or writes in flight", to(part, &AioConfig::queue_depth))
          .in(at_least(1)),
      integer("intra_op_parallelism", "1", "threads that read and write where the kernel has no io_uring",
              to(part, &AioConfig::intra_op_parallelism))
          .in(at_least(1))
          .once({"thread_count"}),
      no_effect(boolean("single_submit", "false"),
                "operations go to the kernel as they come, together if several wait"),
      no_effect(boolean("overlap_events", "true"), "more is always submitted while earlier operations run"),
      refused(boolean("use_gds", "false"), "GPUDirect Storage needs a CUDA device", {false}),
  };
  return s;
}

Section checkpoint() {
  const std::string why = "checkpoints to resume from are not written yet";
  Section s{.path = "checkpoint", .types = {}, .keys = {}};
  s.keys = {
      no_effect(choice("tag_validation", {"Warn", "Ignore", "Fail"}, "Warn").in_any_case(), why),
      refused(boolean("load_universal", "false"), "checkpoints to resume from are not read yet", {false}),
      no_effect(boolean("use_node_local_storage", "false"), why),
      no_effect(boolean("checkpoint_serialization", "true"), why),
      no_effect(anything("parallel_write", "{}"), why),
      no_effect(anything("writer", "{}"), why),
  };
  return s;
}

Section timers() {
  Section s{.path = "timers", .types = {}, .keys = {}};
  s.keys = {block("throughput", "DeepSpeed's throughput timer")};
  return s;
}

Section throughput() {
  const std::string why = "tokens per second are always measured, at step boundaries";
  Section s{.path = "timers.throughput", .types = {}, .keys = {}};
  s.keys = {no_effect(boolean("enabled", "true"), why), no_effect(boolean("synchronized", "true"), why)};
  return s;
}

}  // namespace

std::vector<Section> top_sections() {
  Section file = top();
  for (Key& key : refused_top_keys()) file.keys.push_back(std::move(key));
  return {std::move(file),
          fp16(),
          bf16(),
          data_types(),
          monitor("tensorboard", &Config::tensorboard),
          monitor("csv_monitor", &Config::csv_monitor),
          aliquot_block(),
          activation_checkpointing(),
          aio(),
          checkpoint(),
          timers(),
          throughput()};
}

}  // namespace aliquot::schema
