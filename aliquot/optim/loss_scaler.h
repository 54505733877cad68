// Static and dynamic loss scaling for fp16: the scaler of DeepSpeed's ZeRO stages, step by step.
//
// The backward pass runs on loss · scale, the update unscales by the same number [Note: arithmetic, A1]. Once
// a boundary, after it is known whether the gradients overflowed, `update` moves the scale for the next
// window:
//
//   overflow: with hysteresis left (> 1) it is used up by one and the scale stays; else scale = max(scale /
//   2, min_loss_scale). clean:    consecutive_hysteresis refills the hysteresis. Where (iter − last_overflow
//   − 1) is a positive multiple of
//             loss_scale_window the scale doubles, and the hysteresis is refilled. last_overflow starts at
//             −1, so the first doubling comes with clean step window + 1, later ones every `window` steps.
//
// The same at every stage, 0 included. Differences from DeepSpeed, on purpose:
//   - At the minimum an overflow keeps the scale and skips the step; DeepSpeed's ZeRO stages end the run at
//   once there (its
//     stage 0 never does). Here the run ends with LossScaleError after `kPatience` overflows at the minimum
//     in a row: the scale is not what is wrong then.
//   - Its stage 0 ignores hysteresis.
//   - Steps are unscaled by the scale that backward ran with; DeepSpeed unscales by the new one, which halves
//   the update in
//     each step where the scale doubles.
#pragma once

#include <cstdint>
#include <string>

#include "aliquot/config/config.h"
#include "aliquot/error.h"

namespace aliquot {

/// Gradients overflow however small the loss scale is.
class LossScaleError : public Error {
 public:
  using Error::Error;
};

class LossScaler {
 public:
  /// Overflows at the minimum scale, in a row, that end the run.
  static constexpr int64_t kPatience = 100;

  /// What a checkpoint keeps, in DeepSpeed's names where it has them.
  struct State {
    double cur_scale = 1;
    int64_t cur_iter = 0;
    int64_t last_overflow_iter = -1;
    int64_t cur_hysteresis = 1;
    int64_t overflows_at_minimum = 0;  ///< in a row

    bool operator==(const State&) const = default;
  };

  /// Without `enabled` the scale is 1 and stays 1; with `loss_scale` > 0 it is that and stays that. Throws
  /// ConfigError for values that no scale can come of.
  explicit LossScaler(const Fp16Config& config);

  /// What the loss of the coming window is multiplied with.
  double scale() const { return state_.cur_scale; }
  bool dynamic() const { return dynamic_; }

  /// One boundary. After an overflow, returns what became of the scale ("loss scale 65536 -> 32768"), to be
  /// said beside why the step was skipped; empty after a clean step, and where there is no scale. The state
  /// is updated also when it throws LossScaleError.
  std::string update(bool overflow);

  const State& state() const { return state_; }
  void load_state(const State& state) { state_ = state; }

 private:
  std::string overflowed();
  std::string overflowed_at_minimum();
  void clean();

  Fp16Config config_;
  bool dynamic_;
  State state_;
};

}  // namespace aliquot
