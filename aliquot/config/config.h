// A ds_config.json as typed values: what the engine reads, with DeepSpeed's key names and defaults.
//
// `load_config` (load.h) makes one from a file; programs may also fill one by hand. Sizes called
// *_bucket_size, *_threshold and stage3_* are in elements, as in DeepSpeed. Values that "auto" left open have
// been resolved by `resolve_config`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aliquot {

enum class DType { fp32, bf16, fp16 };

/// "fp32", "bf16", "fp16".
const char* name_of(DType dtype);
/// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  return dtype == DType::fp32 ? 4 : 2;
}

enum class OffloadDevice { none, cpu, nvme };

enum class OptimizerKind { adam, adamw, sgd, lion, adagrad, lamb };

/// One optimizer and its defaults; parameter groups may override lr, betas and weight_decay
/// (engine/engine.h).
struct OptimizerConfig {
  OptimizerKind kind =
      OptimizerKind::adamw;    ///< adam means L2 decay: `Adam` without "adam_w_mode": false is adamw
  std::string type = "AdamW";  ///< as written in the file
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool bias_correction = true;                ///< Adam, AdamW, Lamb
  double momentum = 0.0, dampening = 0.0;     ///< SGD
  bool nesterov = false;                      ///< SGD
  double max_coeff = 10.0, min_coeff = 0.01;  ///< Lamb
  bool eps_inside_sqrt = false;               ///< Lamb
  double lr_decay = 0.0;                      ///< Adagrad: step t uses lr / (1 + (t-1)·lr_decay)
  double initial_accumulator_value = 0.0;     ///< Adagrad: the sum of squares before the first step

  bool operator==(const OptimizerConfig&) const = default;
};

enum class SchedulerKind { none, warmup, warmup_decay, warmup_cosine, one_cycle, lr_range_test };
enum class WarmupType { log, linear };

/// One learning-rate schedule; the fields that its kind does not have are unused. Formulas: optim/schedule.h.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::none;
  std::string type;  ///< as written in the file
  // WarmupLR, WarmupDecayLR, WarmupCosineLR. Empty: warmup_min_lr 0, warmup_max_lr each group's own lr.
  std::vector<double> warmup_min_lr, warmup_max_lr;  ///< one value, or one per parameter group
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::log;
  int64_t total_num_steps = 0;
  double warmup_min_ratio = 0.0, cos_min_ratio = 1e-4;
  // OneCycle
  std::vector<double> cycle_min_lr, cycle_max_lr;
  double decay_lr_rate = 0.0;
  double cycle_first_step_size = 2000;
  std::optional<double> cycle_second_step_size;
  int64_t cycle_first_stair_count = 0;
  std::optional<int64_t> cycle_second_stair_count;
  double decay_step_size = 0;
  bool cycle_momentum = true;
  std::vector<double> cycle_min_mom{0.8}, cycle_max_mom{0.9};
  double decay_mom_rate = 0.0;
  // LRRangeTest
  std::vector<double> lr_range_test_min_lr{1e-3};
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1.0;
  bool lr_range_test_staircase = false;

  bool operator==(const SchedulerConfig&) const = default;
};

struct Fp16Config {
  bool enabled = false;
  double loss_scale = 0.0;  ///< 0: dynamic
  int initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1.0;

  bool operator==(const Fp16Config&) const = default;
};

struct Bf16Config {
  bool enabled = false;
  bool check_grad_overflow = true;
  bool optimizer_states = false;  ///< moments are bf16 too, rounded stochastically; masters stay fp32

  bool operator==(const Bf16Config&) const = default;
};

struct OffloadConfig {
  OffloadDevice device = OffloadDevice::none;
  std::vector<std::string> nvme_path;  ///< several are striped
  bool pin_memory = true;
  double ratio = 1.0;        ///< optimizer
  int64_t buffer_count = 4;  ///< staging buffers of the optimizer's ring
  bool pipeline_read = true, pipeline_write = true;
  int64_t max_in_cpu = 1'000'000'000;  ///< parameters: elements of this rank that stay in memory

  bool operator==(const OffloadConfig&) const = default;
};

/// The `aio` block: how NVMe is read and written.
struct AioConfig {
  int64_t block_size = 1 << 20;  ///< bytes of one operation
  int64_t queue_depth = 8;       ///< operations in flight
  int64_t intra_op_parallelism = 1;

  bool operator==(const AioConfig&) const = default;
};

struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500'000'000;
  int64_t allgather_bucket_size = 500'000'000;
  bool overlap_comm = false;  ///< unset in the file: true at stage 3
  bool round_robin_gradients = false;
  bool ignore_unused_parameters = true;
  int64_t sub_group_size = 1'000'000'000;
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = INT64_MAX;
  bool stage3_gather_16bit_weights_on_model_save = false;
  OffloadConfig offload_optimizer, offload_param;

  bool operator==(const ZeroConfig&) const = default;
};

/// The `activation_checkpointing` block: of which blocks a built-in model keeps the inputs alone, and
/// computes the rest again in backward (engine/checkpoint.h).
struct ActivationCheckpointingConfig {
  bool enabled = false;
  std::optional<int64_t> number_checkpoints = {};  ///< the blocks in so many runs; unset: each by itself
  int64_t every = 1;  ///< "aliquot": {"checkpoint_every": k}: every k-th block only

  bool operator==(const ActivationCheckpointingConfig&) const = default;
};

/// A `tensorboard` or `csv_monitor` block.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";

  bool operator==(const MonitorConfig&) const = default;
};

enum class AllreduceOp { mean, sum };

struct Config {
  // train_batch_size = micro-batch × accumulation × world, checked by resolve_config.
  int64_t train_batch_size = 0;
  int64_t train_micro_batch_size_per_gpu = 0;
  int64_t gradient_accumulation_steps = 1;

  std::optional<OptimizerConfig> optimizer;
  SchedulerConfig scheduler;
  Fp16Config fp16;
  Bf16Config bf16;
  ZeroConfig zero;
  AioConfig aio;

  double gradient_clipping = 1.0;  ///< 0: off
  AllreduceOp gradient_allreduce_op = AllreduceOp::mean;
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  std::optional<DType> communication_data_type;  ///< unset: the dtype in which a gradient is born
  DType grad_accum_dtype = DType::fp32;
  std::optional<DType> buffer_dtype;
  std::vector<std::string> keep_fp32;  ///< "aliquot": {"keep_fp32": [...]}: substrings of names kept in fp32

  int64_t replica_check_interval = 100;  ///< "aliquot": steps between comparisons of replicas; 0: never

  ActivationCheckpointingConfig activation_checkpointing;

  std::optional<int64_t> steps_per_print;
  bool wall_clock_breakdown = false;
  MonitorConfig tensorboard, csv_monitor;

  bool operator==(const Config&) const = default;

  /// The dtype in which parameters compute.
  DType param_dtype() const { return fp16.enabled ? DType::fp16 : bf16.enabled ? DType::bf16 : DType::fp32; }
};

}  // namespace aliquot
