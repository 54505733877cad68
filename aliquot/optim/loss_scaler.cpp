#include "aliquot/optim/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aliquot {
namespace {

void require(bool ok, const char* key, const std::string& value, const char* expected) {
  if (!ok) throw ConfigError(fmt::format("fp16.{}: {} is not {}", key, value, expected));
}

double initial_scale(const Fp16Config& config) {
  if (!config.enabled) return 1;
  require(config.loss_scale >= 0 && std::isfinite(config.loss_scale), "loss_scale",
          fmt::to_string(config.loss_scale), "a finite number, 0 (dynamic) or above");
  if (config.loss_scale > 0) return config.loss_scale;
  const double scale = std::ldexp(1.0, config.initial_scale_power);
  require(scale > 0 && std::isfinite(scale), "initial_scale_power",
          fmt::to_string(config.initial_scale_power), "an exponent of 2 that a double has (-1022 to 1023)");
  require(config.loss_scale_window > 0, "loss_scale_window", fmt::to_string(config.loss_scale_window),
          "a positive number of steps");
  require(config.min_loss_scale > 0 && std::isfinite(config.min_loss_scale), "min_loss_scale",
          fmt::to_string(config.min_loss_scale), "a positive number");
  return scale;
}

}  // namespace

LossScaler::LossScaler(const Fp16Config& config)
    : config_(config), dynamic_(config.enabled && config.loss_scale == 0) {
  state_.cur_scale = initial_scale(config);
  state_.cur_hysteresis = config.hysteresis;
}

std::string LossScaler::update(bool overflow) {
  if (!dynamic_) {
    return overflow && config_.enabled ? fmt::format("loss scale stays {}: it is static", scale()) : "";
  }
  if (!overflow) {
    clean();
    ++state_.cur_iter;
    return "";
  }
  state_.last_overflow_iter = state_.cur_iter++;
  return overflowed();
}

std::string LossScaler::overflowed() {
  if (config_.hysteresis != 1 && state_.cur_hysteresis != 1) {
    --state_.cur_hysteresis;
    return fmt::format("loss scale stays {}: hysteresis used, {} of {} left", scale(), state_.cur_hysteresis,
                       config_.hysteresis);
  }
  const double before = scale();
  if (before == config_.min_loss_scale) return overflowed_at_minimum();
  state_.cur_scale = std::max(before / 2, config_.min_loss_scale);
  return fmt::format("loss scale {} -> {}", before, scale());
}

std::string LossScaler::overflowed_at_minimum() {
  if (++state_.overflows_at_minimum >= kPatience) {
    throw LossScaleError(
        fmt::format("fp16: {} steps in a row overflowed at the minimum loss scale {}, none of them was "
                    "applied; the gradients themselves "
                    "are too large or not finite. Lower the learning rate or clip gradients, keep the "
                    "parameter named beside the "
                    "skipped steps in fp32, or use bf16, which needs no loss scale",
                    state_.overflows_at_minimum, scale()));
  }
  return fmt::format("loss scale stays {}, its minimum; {} of {} overflows there in a row that end the run",
                     scale(), state_.overflows_at_minimum, kPatience);
}

void LossScaler::clean() {
  state_.overflows_at_minimum = 0;
  if (config_.consecutive_hysteresis) state_.cur_hysteresis = config_.hysteresis;
  const int64_t clean_steps = state_.cur_iter - state_.last_overflow_iter - 1;
  if (clean_steps <= 0 || clean_steps % config_.loss_scale_window != 0) return;
  state_.cur_hysteresis = config_.hysteresis;
  state_.cur_scale *= 2;
}

}  // namespace aliquot
