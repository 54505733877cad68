#include "aliquot/config/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "aliquot/config/coerce.h"

namespace aliquot {
namespace {

class Rules {
 public:
  Rules(const Config& config, const LoadedConfig& loaded, const RuleContext& context, Findings& findings)
      : c_(config), loaded_(loaded), context_(context), findings_(findings) {}

  void check() {
    precision();
    moments();
    reductions();
    offload("zero_optimization.offload_optimizer", c_.zero.offload_optimizer, 1,
            "stage 0 partitions no optimizer states");
    offload("zero_optimization.offload_param", c_.zero.offload_param, 3,
            "parameters are partitioned at stage 3 only");
    ratio();
    activation_checkpointing();
    unread_stage3_keys();
    if (c_.optimizer) optimizer();
    if (c_.scheduler.kind != SchedulerKind::none) scheduler();
  }

 private:
  const Given* given(const std::string& path) const {
    const auto found = loaded_.given.find(path);
    return found == loaded_.given.end() ? nullptr : &found->second;
  }

  // Where the file says `path`, or nowhere.
  json::Position at(const std::string& path) const {
    if (const Given* g = given(path)) return g->at;
    const auto open = loaded_.open.find(path);
    return open == loaded_.open.end() ? json::Position{} : open->second;
  }

  bool says(const std::string& path) const { return given(path) != nullptr || loaded_.open.contains(path); }

  // An error about `path`, unless one of the keys it follows from has failed already.
  void error(const std::string& path, const std::string& text,
             std::initializer_list<const char*> follows_from = {}) {
    const auto failed = [&](const std::string& p) { return findings_.failed(p); };
    if (failed(path) || std::ranges::any_of(follows_from, failed)) return;
    findings_.error(at(path), path, text);
  }

  void precision() {
    if (c_.fp16.enabled && c_.bf16.enabled) {
      error("bf16.enabled", "true, and fp16.enabled is true too; expected at most one of them",
            {"fp16.enabled"});
    }
    if (c_.fp16.enabled && c_.fp16.loss_scale == 0) {
      if (c_.fp16.loss_scale_window < 1) {
        error("fp16.loss_scale_window", fmt::format("{}: expected at least 1 where the loss scale is dynamic",
                                                    c_.fp16.loss_scale_window));
      }
      if (c_.fp16.min_loss_scale < 1) {
        error("fp16.min_loss_scale",
              fmt::format("{}: expected at least 1 where the loss scale is dynamic", c_.fp16.min_loss_scale));
      }
    }
    if (const Given* param_dtype = given("data_types.param_dtype")) {
      const auto* name = std::get_if<std::string>(&param_dtype->value);
      if (name != nullptr && *name != name_of(c_.param_dtype())) {
        error("data_types.param_dtype",
              fmt::format("{}, but fp16.enabled and bf16.enabled make parameters {}", *name,
                          name_of(c_.param_dtype())),
              {"fp16.enabled", "bf16.enabled"});
      }
    }
  }

  void moments() {
    if (!c_.bf16.optimizer_states) return;
    if (!c_.bf16.enabled)
      error("bf16.bf16_optimizer_states", "true, but bf16.enabled is not", {"bf16.enabled"});
    if (c_.optimizer && c_.optimizer->kind == OptimizerKind::lamb) {
      error("bf16.bf16_optimizer_states",
            "true is not supported with Lamb, whose two passes read fp32 moments");
    }
  }

  void reductions() {
    if (c_.gradient_allreduce_op == AllreduceOp::sum && c_.zero.stage == 3) {
      error("gradient_allreduce_op",
            "\"sum\" is not supported with ZeRO stage 3, as in DeepSpeed; use \"mean\"",
            {"zero_optimization.stage"});
    }
  }

  void offload(const std::string& path, const OffloadConfig& part, int lowest_stage, const char* why) {
    if (part.device == OffloadDevice::none) return;
    const bool nvme = part.device == OffloadDevice::nvme;
    // A deprecated spelling has no device key of its own.
    const std::string device = says(path + ".device") ? path + ".device" : path;
    if (c_.zero.stage < lowest_stage) {
      error(device,
            fmt::format("\"{}\" with stage {}; expected stage {} or higher, since {}", nvme ? "nvme" : "cpu",
                        c_.zero.stage, lowest_stage, why),
            {"zero_optimization.stage"});
    }
    if (nvme && part.nvme_path.empty()) {
      error(path + ".nvme_path", "missing; device \"nvme\" needs a folder on a local disk");
    }
    if (nvme && part == c_.zero.offload_optimizer && c_.optimizer &&
        c_.optimizer->kind == OptimizerKind::lamb) {
      error(device,
            "\"nvme\" is not supported with Lamb, whose trust ratio needs two passes over the states");
    }
    if (nvme) return;
    if (!context_.host_is_device) {
      error(device, "\"cpu\": not supported yet with an accelerator: offload to host memory is a later part");
    } else {
      findings_.note(at(device), device, "no effect here: on a CPU everything is in host memory already");
    }
  }

  void ratio() {
    const OffloadConfig& part = c_.zero.offload_optimizer;
    if (part.ratio < 1 && c_.zero.stage != 3) {
      error("zero_optimization.offload_optimizer.ratio",
            fmt::format("{} with stage {}; expected stage 3, or 1.0", part.ratio, c_.zero.stage),
            {"zero_optimization.stage"});
    }
  }

  void activation_checkpointing() {
    const ActivationCheckpointingConfig& a = c_.activation_checkpointing;
    const char* every = "aliquot.checkpoint_every";
    if (!a.enabled) {
      if (says(every)) error(every, "needs the block \"activation_checkpointing\": {} to be there");
      return;
    }
    if (a.number_checkpoints && a.every != 1) {
      error(every,
            fmt::format("{}, and activation_checkpointing.number_checkpoints is {}; give one of them",
                        a.every, *a.number_checkpoints),
            {"activation_checkpointing.number_checkpoints"});
    }
    const Given* to_host = given("activation_checkpointing.cpu_checkpointing");
    if (!context_.host_is_device && to_host != nullptr && to_host->value == schema::Scalar(true)) {
      error("activation_checkpointing.cpu_checkpointing",
            "true: not supported yet with an accelerator: offload to host memory is a later part");
    }
    findings_.note(at("activation_checkpointing"), "activation_checkpointing",
                   "on: built-in models compute blocks again in backward, about a third more work, and keep "
                   "less (in DeepSpeed the block alone does nothing)");
  }

  void unread_stage3_keys() {
    if (c_.zero.stage == 3) return;
    std::vector<std::string> names;
    for (const auto& [path, g] : loaded_.given) {
      constexpr std::string_view kPrefix = "zero_optimization.";
      if (path.starts_with("zero_optimization.stage3_")) names.push_back(path.substr(kPrefix.size()));
    }
    if (names.empty()) return;
    findings_.note(at("zero_optimization"), "zero_optimization",
                   fmt::format("no effect at stage {}: {}", c_.zero.stage, fmt::join(names, ", ")));
  }

  // ---- optimizer ----

  void optimizer() {
    const OptimizerConfig& o = *c_.optimizer;
    const std::string params = "optimizer.params.";
    if (o.kind == OptimizerKind::sgd && o.nesterov && (o.momentum <= 0 || o.dampening != 0)) {
      error(params + "nesterov", "true; expected a momentum above 0 and no dampening");
    }
    if (o.kind == OptimizerKind::lamb && o.min_coeff > o.max_coeff) {
      error(params + "min_coeff",
            fmt::format("{}; expected at most max_coeff, {}", o.min_coeff, o.max_coeff));
    }
    const Given* max_norm = given(params + "max_grad_norm");
    if (max_norm == nullptr) return;
    double value = 0;
    schema::assign(value, max_norm->value);
    if (says("gradient_clipping") && value == c_.gradient_clipping) {
      findings_.warn(max_norm->at, params + "max_grad_norm", "deprecated; gradient_clipping says the same");
    } else {
      error(
          params + "max_grad_norm",
          fmt::format("{}: no parameter of the optimizer; write \"gradient_clipping\": {} at the top level{}",
                      value, value,
                      says("gradient_clipping") ? fmt::format(" (it is {} now)", c_.gradient_clipping) : ""),
          {"gradient_clipping"});
    }
  }

  // ---- scheduler ----

  void scheduler() {
    const SchedulerConfig& s = c_.scheduler;
    group_counts();
    const bool decays = s.kind == SchedulerKind::warmup_decay || s.kind == SchedulerKind::warmup_cosine;
    if (decays && s.total_num_steps > 0 && s.total_num_steps < s.warmup_num_steps) {
      findings_.warn(
          at("scheduler.params.total_num_steps"), "scheduler.params.total_num_steps",
          fmt::format("{} is below warmup_num_steps, {}: the rate is at its lowest right after the warm-up",
                      s.total_num_steps, s.warmup_num_steps));
    }
    if (s.kind == SchedulerKind::warmup || s.kind == SchedulerKind::warmup_decay) warmup_peak();
  }

  void warmup_peak() {
    if (!c_.optimizer) return;
    const std::string path = "scheduler.params.warmup_max_lr";
    const std::vector<double>& peak = c_.scheduler.warmup_max_lr;
    if (peak.empty() && !loaded_.open.contains(path)) {
      findings_.note(at("scheduler"), path,
                     fmt::format("not given: the warm-up ends at the optimizer's lr, {}", c_.optimizer->lr));
    } else if (std::ranges::any_of(peak, [&](double p) { return p != c_.optimizer->lr; })) {
      findings_.note(
          at(path), path,
          fmt::format("{}: replaces the optimizer's lr, {}", fmt::join(peak, ", "), c_.optimizer->lr));
    }
  }

  // Lists have one value per parameter group, so all have the same length; one value holds for every group.
  void group_counts() {
    const SchedulerConfig& s = c_.scheduler;
    const std::pair<const char*, const std::vector<double>*> lists[] = {
        {"warmup_min_lr", &s.warmup_min_lr},
        {"warmup_max_lr", &s.warmup_max_lr},
        {"cycle_min_lr", &s.cycle_min_lr},
        {"cycle_max_lr", &s.cycle_max_lr},
        {"cycle_min_mom", &s.cycle_min_mom},
        {"cycle_max_mom", &s.cycle_max_mom},
        {"lr_range_test_min_lr", &s.lr_range_test_min_lr}};
    std::optional<int64_t> groups = context_.param_groups;
    for (const auto& [name, values] : lists) {
      const auto size = static_cast<int64_t>(values->size());
      if (size <= 1) continue;
      if (!groups) groups = size;
      if (size != *groups) {
        error(std::string("scheduler.params.") + name,
              fmt::format("{} values; expected one, or one for each of the {} parameter groups", size,
                          *groups));
      }
    }
  }

  const Config& c_;
  const LoadedConfig& loaded_;
  const RuleContext& context_;
  Findings& findings_;
};

}  // namespace

void check_rules(const Config& config, const LoadedConfig& loaded, const RuleContext& context,
                 Findings& findings) {
  Rules(config, loaded, context, findings).check();
}

}  // namespace aliquot
