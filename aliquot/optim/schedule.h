// The five learning-rate schedules of DeepSpeed, formula by formula.
//
// A schedule holds the learning rate (and, for OneCycle, beta1) of every parameter group for the coming
// optimizer step. The engine calls `step` after each applied step and only then: a skipped one does not move
// the schedule. With i the number of calls so far minus one (i = −1 before the first), N = max(2,
// warmup_num_steps), T = total_num_steps:
//
//   warm(i)        log: ln(i+1)/ln N;  linear: i/N
//   WarmupLR       i = −1: min;  else min + (max − min)·γ, γ = warm(i) for i < N, then 1. The first two
//   optimizer steps run at
//                  min, since warm(0) = 0.
//   WarmupDecayLR  as WarmupLR, but γ = max(0, (T − i)/max(1, T − N)) for i ≥ N
//   WarmupCosineLR i = −1: 0;  else lr·r with r = rmin + (1 − rmin)·warm(i) for i < N, then
//                  cmin + (1 − cmin)(1 + cos(π·min(1, (i − N + 1)/max(1, T − N))))/2, at least 0
//                  (rmin = warmup_min_ratio, cmin = cos_min_ratio)
//   OneCycle       i = −1: lr = min, beta1 = min_mom;  for i < total = first + second, with b = i + 1:
//                  x = b/total − ⌊b/total⌋, ρ = first/total, s = x/ρ if x ≤ ρ, else (x − 1)/(ρ − 1);
//                  with stairs, c = b mod total: s = ⌊c·count/first⌋/count if c ≤ first, else ⌊(total −
//                  c)·count/second⌋/count; lr = min + (max − min)·s, beta1 = max_mom − (max_mom − min_mom)·s.
//                  From i ≥ total on, k = (i − total + 1)/decay_step_size: lr = min/(1 + decay_lr_rate·k),
//                  beta1 = max_mom·(1 + decay_mom_rate·k); without decay_step_size, k = 0. beta2 is 0.99
//                  throughout.
//   LRRangeTest    min·(1 + rate·k), k = (i+1)/size, whole steps of it with staircase; i = −1: min
//
// Differences from DeepSpeed, on purpose:
//   - without warmup_max_lr the peak is each group's own lr, in WarmupDecayLR too (DeepSpeed: 0.001 there);
//   - loading a state also restores the learning rates (DeepSpeed leaves that to the optimizer's own state).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "aliquot/config/config.h"

namespace aliquot {

class Schedule {
 public:
  /// A parameter group before any schedule.
  struct Group {
    double lr = 0, beta1 = 0, beta2 = 0;
  };

  /// Lists in the configuration hold one value, or one a group. `has_betas`: whether the optimizer has betas
  /// for OneCycle to cycle (optimizer.h). Throws ConfigError for lists of another length and for sizes
  /// without meaning.
  Schedule(const SchedulerConfig& config, std::vector<Group> groups, bool has_betas);

  /// Of the coming optimizer step, for group `group`.
  double lr(size_t group) const { return current_[group].lr; }
  std::pair<double, double> betas(size_t group) const {
    return {current_[group].beta1, current_[group].beta2};
  }
  size_t groups() const { return current_.size(); }

  /// After an applied optimizer step.
  void step();

  /// All that a checkpoint keeps: i of the formulas.
  int64_t last_batch_iteration() const { return iteration_; }
  void load_state(int64_t last_batch_iteration);

 private:
  Group at(size_t group) const;
  double warmup() const;
  double warmup_lr(size_t group) const;
  double decay_gamma() const;
  double cosine_ratio() const;
  void one_cycle(size_t group, Group& result) const;
  double cycle_position() const;
  double range_test_lr(size_t group) const;

  SchedulerConfig config_;
  std::vector<Group> base_, current_;
  bool cycles_betas_;
  int64_t iteration_ = -1;
};

}  // namespace aliquot
