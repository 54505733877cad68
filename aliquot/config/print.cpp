#include "aliquot/config/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "aliquot/config/schema.h"

namespace aliquot {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::none:
      return "none";
    case OffloadDevice::cpu:
      return "cpu";
    case OffloadDevice::nvme:
      return "nvme";
  }
  return "?";
}

// The name in the file, or the usual one where a program filled in another kind.
std::string type_of(const OptimizerConfig& c) {
  const auto named = schema::optimizer_named(c.type);
  const bool adam_family = named == OptimizerKind::adam && c.kind == OptimizerKind::adamw;
  if (named == c.kind || adam_family) return c.type;
  switch (c.kind) {
    case OptimizerKind::adam:
      return "Adam";
    case OptimizerKind::adamw:
      return "AdamW";
    case OptimizerKind::sgd:
      return "SGD";
    case OptimizerKind::lion:
      return "Lion";
    case OptimizerKind::adagrad:
      return "Adagrad";
    case OptimizerKind::lamb:
      return "Lamb";
  }
  return c.type;
}

Json optimizer_json(const OptimizerConfig& c) {
  const OptimizerKind k = c.kind;
  const bool adam = k == OptimizerKind::adam || k == OptimizerKind::adamw;
  Json p{{"lr", c.lr}};
  if (adam || k == OptimizerKind::lion || k == OptimizerKind::lamb) p["betas"] = {c.beta1, c.beta2};
  if (adam || k == OptimizerKind::lamb || k == OptimizerKind::adagrad) p["eps"] = c.eps;
  p["weight_decay"] = c.weight_decay;
  if (adam || k == OptimizerKind::lamb) p["bias_correction"] = c.bias_correction;
  if (k == OptimizerKind::adam) p["adam_w_mode"] = false;
  if (k == OptimizerKind::sgd) {
    p["momentum"] = c.momentum;
    p["dampening"] = c.dampening;
    p["nesterov"] = c.nesterov;
  }
  if (k == OptimizerKind::adagrad) {
    p["lr_decay"] = c.lr_decay;
    p["initial_accumulator_value"] = c.initial_accumulator_value;
  }
  if (k == OptimizerKind::lamb) {
    p["max_coeff"] = c.max_coeff;
    p["min_coeff"] = c.min_coeff;
    p["eps_inside_sqrt"] = c.eps_inside_sqrt;
  }
  return {{"type", type_of(c)}, {"params", p}};
}

// One value stands for all parameter groups.
void put(Json& object, const char* name, const std::vector<double>& values) {
  if (values.size() == 1) object[name] = values.front();
  if (values.size() > 1) object[name] = values;
}

template <class T>
void put(Json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

void put(Json& object, const char* name, const std::optional<DType>& value) {
  if (value) object[name] = name_of(*value);
}

Json scheduler_json(const SchedulerConfig& c) {
  Json p = Json::object();
  const bool decay = c.kind == SchedulerKind::warmup_decay, cosine = c.kind == SchedulerKind::warmup_cosine;
  if (c.kind == SchedulerKind::one_cycle) {
    put(p, "cycle_min_lr", c.cycle_min_lr);
    put(p, "cycle_max_lr", c.cycle_max_lr);
    p["decay_lr_rate"] = c.decay_lr_rate;
    p["cycle_first_step_size"] = c.cycle_first_step_size;
    put(p, "cycle_second_step_size", c.cycle_second_step_size);
    p["cycle_first_stair_count"] = c.cycle_first_stair_count;
    put(p, "cycle_second_stair_count", c.cycle_second_stair_count);
    p["decay_step_size"] = c.decay_step_size;
    p["cycle_momentum"] = c.cycle_momentum;
    put(p, "cycle_min_mom", c.cycle_min_mom);
    put(p, "cycle_max_mom", c.cycle_max_mom);
    p["decay_mom_rate"] = c.decay_mom_rate;
  } else if (c.kind == SchedulerKind::lr_range_test) {
    put(p, "lr_range_test_min_lr", c.lr_range_test_min_lr);
    p["lr_range_test_step_size"] = c.lr_range_test_step_size;
    p["lr_range_test_step_rate"] = c.lr_range_test_step_rate;
    p["lr_range_test_staircase"] = c.lr_range_test_staircase;
  } else {
    if (decay || cosine) p["total_num_steps"] = c.total_num_steps;
    if (cosine) {
      p["warmup_min_ratio"] = c.warmup_min_ratio;
      p["cos_min_ratio"] = c.cos_min_ratio;
    } else {
      put(p, "warmup_min_lr", c.warmup_min_lr);
      put(p, "warmup_max_lr", c.warmup_max_lr);
    }
    p["warmup_num_steps"] = c.warmup_num_steps;
    p["warmup_type"] = c.warmup_type == WarmupType::log ? "log" : "linear";
  }
  return {{"type", c.type}, {"params", p}};
}

Json fp16_json(const Fp16Config& c) {
  return {{"enabled", c.enabled},
          {"loss_scale", c.loss_scale},
          {"initial_scale_power", c.initial_scale_power},
          {"loss_scale_window", c.loss_scale_window},
          {"hysteresis", c.hysteresis},
          {"consecutive_hysteresis", c.consecutive_hysteresis},
          {"min_loss_scale", c.min_loss_scale}};
}

void put(Json& zero, const char* name, const OffloadConfig& c) {
  if (c == OffloadConfig{}) return;
  Json block{{"device", name_of(c.device)}, {"pin_memory", c.pin_memory}};
  if (!c.nvme_path.empty()) block["nvme_path"] = c.nvme_path;
  if (c.ratio != 1.0) block["ratio"] = c.ratio;
  const OffloadConfig standard;
  if (c.buffer_count != standard.buffer_count) block["buffer_count"] = c.buffer_count;
  if (!c.pipeline_read) block["pipeline_read"] = false;
  if (!c.pipeline_write) block["pipeline_write"] = false;
  if (c.max_in_cpu != standard.max_in_cpu) block["max_in_cpu"] = c.max_in_cpu;
  zero[name] = block;
}

Json zero_json(const ZeroConfig& c) {
  Json z{{"stage", c.stage},
         {"reduce_bucket_size", c.reduce_bucket_size},
         {"allgather_bucket_size", c.allgather_bucket_size},
         {"overlap_comm", c.overlap_comm},
         {"round_robin_gradients", c.round_robin_gradients},
         {"ignore_unused_parameters", c.ignore_unused_parameters},
         {"sub_group_size", c.sub_group_size},
         {"stage3_max_live_parameters", c.stage3_max_live_parameters},
         {"stage3_max_reuse_distance", c.stage3_max_reuse_distance},
         {"stage3_prefetch_bucket_size", c.stage3_prefetch_bucket_size},
         {"stage3_param_persistence_threshold", c.stage3_param_persistence_threshold},
         {"stage3_model_persistence_threshold", c.stage3_model_persistence_threshold},
         {"stage3_gather_16bit_weights_on_model_save", c.stage3_gather_16bit_weights_on_model_save}};
  put(z, "offload_optimizer", c.offload_optimizer);
  put(z, "offload_param", c.offload_param);
  return z;
}

Json aio_json(const AioConfig& c) {
  return {{"block_size", c.block_size},
          {"queue_depth", c.queue_depth},
          {"intra_op_parallelism", c.intra_op_parallelism}};
}

void put(Json& root, const char* name, const MonitorConfig& c) {
  if (c == MonitorConfig{}) return;
  root[name] = {{"enabled", c.enabled}, {"output_path", c.output_path}, {"job_name", c.job_name}};
}

Json config_json(const Config& c) {
  Json root = Json::object();
  // Zero is "not given" in a Config made by hand.
  if (c.train_batch_size != 0) root["train_batch_size"] = c.train_batch_size;
  if (c.train_micro_batch_size_per_gpu != 0) {
    root["train_micro_batch_size_per_gpu"] = c.train_micro_batch_size_per_gpu;
  }
  if (c.gradient_accumulation_steps != 0) root["gradient_accumulation_steps"] = c.gradient_accumulation_steps;
  if (c.optimizer) root["optimizer"] = optimizer_json(*c.optimizer);
  if (c.scheduler.kind != SchedulerKind::none) root["scheduler"] = scheduler_json(c.scheduler);
  root["gradient_clipping"] = c.gradient_clipping;
  root["gradient_allreduce_op"] = c.gradient_allreduce_op == AllreduceOp::sum ? "sum" : "mean";
  root["prescale_gradients"] = c.prescale_gradients;
  root["gradient_predivide_factor"] = c.gradient_predivide_factor;
  put(root, "communication_data_type", c.communication_data_type);
  root["data_types"]["grad_accum_dtype"] = name_of(c.grad_accum_dtype);
  put(root["data_types"], "buffer_dtype", c.buffer_dtype);
  root["fp16"] = fp16_json(c.fp16);
  root["bf16"] = {{"enabled", c.bf16.enabled},
                  {"check_grad_overflow", c.bf16.check_grad_overflow},
                  {"bf16_optimizer_states", c.bf16.optimizer_states}};
  root["zero_optimization"] = zero_json(c.zero);
  if (c.aio != AioConfig{}) root["aio"] = aio_json(c.aio);
  if (c.activation_checkpointing.enabled) {
    root["activation_checkpointing"] = Json::object();
    put(root["activation_checkpointing"], "number_checkpoints",
        c.activation_checkpointing.number_checkpoints);
  }
  put(root, "steps_per_print", c.steps_per_print);
  root["wall_clock_breakdown"] = c.wall_clock_breakdown;
  put(root, "tensorboard", c.tensorboard);
  put(root, "csv_monitor", c.csv_monitor);
  if (!c.keep_fp32.empty()) root["aliquot"]["keep_fp32"] = c.keep_fp32;
  if (c.activation_checkpointing.every != 1) {
    root["aliquot"]["checkpoint_every"] = c.activation_checkpointing.every;
  }
  if (c.replica_check_interval != Config().replica_check_interval)
    root["aliquot"]["replica_check_interval"] = c.replica_check_interval;
  return root;
}

// The default of a key that the Config does not hold.
std::string fallback_of(const std::string& path) {
  const schema::Key* key = schema::key_at(path);
  return key == nullptr ? "?" : key->fallback;
}

}  // namespace

std::string resolved_json(const Config& config) {
  // Text that is not UTF-8 can only come from a Config made by hand.
  return config_json(config).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string value_text(const Config& config, const std::string& path) {
  const Json root = config_json(config);
  const Json* at = &root;
  for (size_t start = 0; start <= path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    const auto child = at->is_object() ? at->find(path.substr(start, dot - start)) : at->end();
    if (!at->is_object() || child == at->end()) return fallback_of(path);
    at = &*child;
    start = dot + 1;
  }
  return at->dump();
}

std::string auto_table(const Resolution& resolution) {
  if (resolution.autos.empty()) return "";
  size_t path_width = 4, value_width = 6;
  for (const AutoValue& a : resolution.autos) {
    path_width = std::max(path_width, a.path.size());
    value_width = std::max(value_width, a.value.size());
  }
  std::string out = fmt::format("{:<{}}  {:<{}}  {}\n", "auto", path_width, "became", value_width, "by");
  for (const AutoValue& a : resolution.autos) {
    out += fmt::format("{:<{}}  {:<{}}  {}\n", a.path, path_width, a.value, value_width, a.rule);
  }
  return out;
}

std::string notes_text(const Resolution& resolution) {
  std::string out;
  for (const std::string& w : resolution.warnings) out += fmt::format("warning: {}\n", w);
  for (const std::string& n : resolution.notes) out += fmt::format("note: {}\n", n);
  return out;
}

}  // namespace aliquot
