// One optimizer step, from the loss to published parameters. Order of additions and roundings: [Note:
// arithmetic].
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>

#include "aliquot/engine/replica_check.h"
#include "aliquot/engine/state.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr int64_t kSkipMessages =
    5;  // then every hundredth: a run that skips for ever should not fill the disk

}  // namespace

// ---- backward
// --------------------------------------------------------------------------------------------------------

void EngineState::backward(const at::Tensor& loss, const BackwardOptions& options) {
  require_usable();
  if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point()) {
    throw UsageError("backward: the loss must be one floating-point number");
  }
  if (backward_running) {
    if (!this->options.quiet) log::warn("the previous backward threw: its accumulation window is dropped");
    drop_window();
  }
  hooks->check_parameters();
  if (scale_wrt_gas.value_or(options.scale_wrt_gas) != options.scale_wrt_gas) {
    throw UsageError("backward: scale_wrt_gas must be the same for a whole accumulation window");
  }
  scale_wrt_gas = options.scale_wrt_gas;
  loss_sum += loss.item<double>();
  ++losses;

  const auto start = Clock::now();
  backward_running = true;
  const at::Tensor root = at::full(loss.sizes(), scaler->scale(), loss.options().requires_grad(false));
  torch::autograd::backward({loss}, {root}, options.retain_graph);
  try {
    reducer->end_backward();
  } catch (...) {
    fail();
    throw;
  }
  backward_running = false;
  backward_ms += ms_since(start);
}

void EngineState::drop_window() {
  reducer->drop_window();
  backward_running = false;
  scale_wrt_gas.reset();
  loss_sum = 0;
  losses = 0;
  backward_ms = 0;
}

// ---- step
// ------------------------------------------------------------------------------------------------------------

double EngineState::gradient_factor() const {
  double divisor = scaler->scale();
  if (config.gradient_allreduce_op == AllreduceOp::mean) divisor *= comm.size();
  if (scale_wrt_gas.value_or(true)) divisor *= static_cast<double>(accumulation_steps);
  return 1.0 / divisor;
}

double EngineState::clip_coefficient(double norm) const {
  const double max = config.gradient_clipping;
  if (max <= 0 || norm + 1e-6 <= max) return 1.0;
  return max / (norm + 1e-6);
}

bool EngineState::skips(const Verdict& verdict) const {
  if (config.bf16.enabled && !config.bf16.check_grad_overflow) return false;
  return !std::isfinite(verdict.sum_of_squares);
}

bool EngineState::step() {
  require_usable();
  if (no_sync) throw UsageError("step() inside no_sync(): end the scope first");
  if (backward_running) {
    drop_window();
    throw UsageError(
        "step(): the last backward threw, so its gradients are incomplete; the accumulation window is "
        "dropped");
  }
  const bool boundary = boundary_override.value_or((micro_steps + 1) % accumulation_steps == 0);
  ++micro_steps;
  if (!boundary) return false;
  try {
    return boundary_step();
  } catch (const CommError&) {
    fail();
    throw;
  }
}

bool EngineState::boundary_step() {
  hooks->check_parameters();
  StepReport report;
  report.loss_scale = scaler->scale();
  report.lr = hypers()[0].lr;

  // A `loss.backward()` of the user's own has no end that we see, and a rank without any gradient has no hook
  // at all.
  if (reducer->in_backward() || reducer->backwards() == 0) reducer->end_backward();
  reducer->end_window();
  auto start = Clock::now();
  Vote vote{.loss_sum = loss_sum, .losses = losses, .stop = stop_requested ? 1 : 0};
  add_squares(*layout, *reducer, comm.rank(), vote);
  const Verdict verdict = agree(comm, vote);
  report.norm_ms = ms_since(start);

  ++global_steps;
  global_samples += config.train_batch_size;
  report.step = global_steps;
  report.loss = verdict.mean_loss;
  report.grad_norm = std::sqrt(verdict.sum_of_squares) * gradient_factor();
  report.stop = verdict.stop;
  report.applied = !skips(verdict);
  if (report.applied) {
    apply(verdict, report);
  } else {
    ++skipped_steps;
    report.skip_reason = describe_skip(verdict);
  }
  buffers.broadcast(comm);
  if (config.replica_check_interval > 0 && global_steps % config.replica_check_interval == 0) {
    check_replicas(*layout, pager->store(), *updater, parameters.names, comm);
  }
  std::string scale_change;
  try {
    scale_change = scaler->update(!report.applied);
  } catch (const LossScaleError&) {
    drop_window();
    micro_steps = 0;
    throw;
  }
  if (report.applied) {
    schedule->step();
  } else {
    if (!scale_change.empty()) report.skip_reason += "; " + scale_change;
    ++skip_messages;
    if (comm.rank() == 0 && !options.quiet && (skip_messages <= kSkipMessages || skip_messages % 100 == 0)) {
      log::warn("step {} skipped: {}", global_steps, report.skip_reason);
    }
  }
  report.backward_ms = backward_ms;
  const ReducerStats reduced = reducer->take_stats();
  const PagerStats paged = pager->take_stats();
  report.reduce_ms = reduced.reduce_ms;
  report.reduce_wait_ms = reduced.wait_ms;
  report.reduce_bytes = reduced.bytes;
  report.gather_ms = paged.gather_ms;
  report.gathered_numel = paged.gathered_numel;
  last = report;
  drop_window();
  micro_steps = 0;
  count_nonfinite_losses(verdict);
  return report.applied;
}

// The verdict is the same on every rank, and every rank has entered this step: nobody reads parameters any
// more.
void EngineState::apply(const Verdict& verdict, StepReport& report) {
  const double norm = std::sqrt(verdict.sum_of_squares) * gradient_factor();
  report.clip_coefficient = clip_coefficient(norm);
  const auto factor = static_cast<float>(report.clip_coefficient * gradient_factor());  // A5

  auto start = Clock::now();
  pager->release_idle();
  gather_sums();
  updater->update(*reducer, factor, hypers(), comm);
  report.update_ms = ms_since(start);

  start = Clock::now();
  pager->store().publish(updater->replicated());
  // A graph built before this update must not go backward through the new values unnoticed.
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    if (reducer->used(static_cast<int>(i))) parameters.tensors[i].unsafeGetTensorImpl()->bump_version();
  }
  report.publish_ms = ms_since(start);
}

// Replicated optimizer states (stage 0): every rank receives every owner's sums (A2).
void EngineState::gather_sums() {
  if (placement.optimizer == Spread::sharded || comm.size() == 1) return;
  const Gradients& gradients = reducer->gradients();
  for (int u = 0; u < static_cast<int>(layout->units().size()); ++u) {
    if (!layout->unit(u).trainable || layout->unit_bytes(u) == 0) continue;
    const auto bytes = static_cast<size_t>(layout->slice_numel(u) * size_of(gradients.dtype()));
    comm.all_gather(gradients.at(u, layout->slice(u, comm.rank()).begin), gradients.at(u, 0), bytes,
                    fmt::format("gradient sums of unit {}", u));
  }
}

std::string EngineState::describe_skip(const Verdict& verdict) const {
  const std::string who = verdict.nonfinite_param >= 0
                              ? parameters.names[static_cast<size_t>(verdict.nonfinite_param)]
                              : "the sum of squares";
  const char* what = std::isnan(verdict.sum_of_squares) ? "NaN" : "Inf";
  if (!std::isfinite(verdict.mean_loss)) {
    return fmt::format(
        "the loss is {} (rank {}), no gradient overflow; first gradient that is not finite: {}",
        std::isnan(verdict.mean_loss) ? "NaN" : "Inf", std::max(verdict.bad_loss_rank, 0), who);
  }
  if (config.fp16.enabled) return fmt::format("gradient overflow, {} in {}", what, who);
  return fmt::format("the gradient of {} holds {}", who, what);
}

void EngineState::count_nonfinite_losses(const Verdict& verdict) {
  const bool bad = verdict.bad_loss_rank >= 0;
  nonfinite_losses = bad ? nonfinite_losses + 1 : 0;
  if (options.nonfinite_loss_limit > 0 && nonfinite_losses >= options.nonfinite_loss_limit) {
    throw Error(fmt::format(
        "the loss was NaN or infinite for {} steps in a row, up to step {}: lower the learning rate or look "
        "at the data; no update was applied in them",
        nonfinite_losses, global_steps));
  }
}

std::vector<GroupHyper> EngineState::hypers() const {
  std::vector<GroupHyper> groups = base_hypers();
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g].lr = schedule->lr(g);
    std::tie(groups[g].beta1, groups[g].beta2) = schedule->betas(g);
  }
  return groups;
}

std::vector<GroupHyper> EngineState::base_hypers() const {
  const OptimizerConfig& o = *config.optimizer;
  std::vector<GroupHyper> groups{{o.lr, o.beta1, o.beta2, o.weight_decay}};
  for (const ParamGroup& group : options.groups) {
    groups.push_back({group.lr.value_or(o.lr), group.beta1.value_or(o.beta1), group.beta2.value_or(o.beta2),
                      group.weight_decay.value_or(o.weight_decay)});
  }
  return groups;
}

}  // namespace aliquot
