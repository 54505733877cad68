#include "aliquot/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "aliquot/error.h"

namespace aliquot {
namespace {

double of_group(const std::vector<double>& values, size_t group) {
  return values.size() == 1 ? values[0] : values[group];
}

void require_list(const std::vector<double>& values, size_t groups, bool may_be_empty, const char* key) {
  if (values.size() == 1 || values.size() == groups || (may_be_empty && values.empty())) return;
  throw ConfigError(fmt::format(
      "scheduler.params.{}: {} values for {} parameter groups; expected one value, or one a group", key,
      values.size(), groups));
}

void require(bool ok, const char* key, double value, const char* expected) {
  if (!ok) throw ConfigError(fmt::format("scheduler.params.{}: {} is not {}", key, value, expected));
}

void check_warmup(const SchedulerConfig& c, size_t groups) {
  require(c.warmup_num_steps > 0, "warmup_num_steps", static_cast<double>(c.warmup_num_steps),
          "a positive number of steps");
  require_list(c.warmup_min_lr, groups, true, "warmup_min_lr");
  require_list(c.warmup_max_lr, groups, true, "warmup_max_lr");
}

void check_one_cycle(const SchedulerConfig& c, size_t groups) {
  require_list(c.cycle_min_lr, groups, false, "cycle_min_lr");
  require_list(c.cycle_max_lr, groups, false, "cycle_max_lr");
  require_list(c.cycle_min_mom, groups, false, "cycle_min_mom");
  require_list(c.cycle_max_mom, groups, false, "cycle_max_mom");
  require(c.cycle_first_step_size > 0, "cycle_first_step_size", c.cycle_first_step_size,
          "a positive number of steps");
  const double second = c.cycle_second_step_size.value_or(c.cycle_first_step_size);
  require(second >= 0, "cycle_second_step_size", second, "0 or a positive number of steps");
}

void check(const SchedulerConfig& c, size_t groups) {
  switch (c.kind) {
    case SchedulerKind::none:
      return;
    case SchedulerKind::warmup:
    case SchedulerKind::warmup_decay:
    case SchedulerKind::warmup_cosine:
      return check_warmup(c, groups);
    case SchedulerKind::one_cycle:
      return check_one_cycle(c, groups);
    case SchedulerKind::lr_range_test:
      require_list(c.lr_range_test_min_lr, groups, false, "lr_range_test_min_lr");
      require(c.lr_range_test_step_size > 0, "lr_range_test_step_size",
              static_cast<double>(c.lr_range_test_step_size), "a positive number of steps");
  }
}

int64_t warmup_steps(const SchedulerConfig& c) {
  return std::max<int64_t>(2, c.warmup_num_steps);
}

}  // namespace

Schedule::Schedule(const SchedulerConfig& config, std::vector<Group> groups, bool has_betas)
    : config_(config), base_(std::move(groups)), cycles_betas_(has_betas && config.cycle_momentum) {
  check(config_, base_.size());
  load_state(-1);
}

void Schedule::step() {
  load_state(iteration_ + 1);
}

void Schedule::load_state(int64_t last_batch_iteration) {
  iteration_ = last_batch_iteration;
  current_ = base_;
  for (size_t g = 0; g < base_.size(); ++g) current_[g] = at(g);
}

Schedule::Group Schedule::at(size_t group) const {
  Group result = base_[group];
  switch (config_.kind) {
    case SchedulerKind::none:
      break;
    case SchedulerKind::warmup:
    case SchedulerKind::warmup_decay:
      result.lr = warmup_lr(group);
      break;
    case SchedulerKind::warmup_cosine:
      result.lr = iteration_ < 0 ? 0 : result.lr * cosine_ratio();
      break;
    case SchedulerKind::one_cycle:
      one_cycle(group, result);
      break;
    case SchedulerKind::lr_range_test:
      result.lr = range_test_lr(group);
      break;
  }
  return result;
}

double Schedule::warmup() const {
  const auto i = static_cast<double>(iteration_);
  const auto n = static_cast<double>(warmup_steps(config_));
  return config_.warmup_type == WarmupType::log ? std::log(i + 1) / std::log(n) : i / n;
}

double Schedule::decay_gamma() const {
  const auto left = static_cast<double>(config_.total_num_steps - iteration_);
  const auto decay_steps = static_cast<double>(config_.total_num_steps - warmup_steps(config_));
  return std::max(0.0, left / std::max(1.0, decay_steps));
}

double Schedule::warmup_lr(size_t group) const {
  const double min = config_.warmup_min_lr.empty() ? 0 : of_group(config_.warmup_min_lr, group);
  const double max = config_.warmup_max_lr.empty() ? base_[group].lr : of_group(config_.warmup_max_lr, group);
  if (iteration_ < 0) return min;
  double gamma = 1;
  if (iteration_ < warmup_steps(config_)) {
    gamma = warmup();
  } else if (config_.kind == SchedulerKind::warmup_decay) {
    gamma = decay_gamma();
  }
  return min + (max - min) * gamma;
}

double Schedule::cosine_ratio() const {
  const int64_t n = warmup_steps(config_);
  if (iteration_ < n) return config_.warmup_min_ratio + (1 - config_.warmup_min_ratio) * warmup();
  const auto decay_steps = static_cast<double>(config_.total_num_steps - n);
  const double progress = std::min(1.0, static_cast<double>(iteration_ - n + 1) / std::max(1.0, decay_steps));
  const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return std::max(0.0, config_.cos_min_ratio + (1 - config_.cos_min_ratio) * cosine);
}

void Schedule::one_cycle(size_t group, Group& result) const {
  const double min = of_group(config_.cycle_min_lr, group), max = of_group(config_.cycle_max_lr, group);
  const double min_mom = of_group(config_.cycle_min_mom, group),
               max_mom = of_group(config_.cycle_max_mom, group);
  const double first = config_.cycle_first_step_size;
  const double total = first + config_.cycle_second_step_size.value_or(first);
  const auto i = static_cast<double>(iteration_);
  double beta1 = min_mom;
  if (iteration_ < 0) {
    result.lr = min;
  } else if (i < total) {
    const double s = cycle_position();
    result.lr = min + (max - min) * s;
    beta1 = max_mom - (max_mom - min_mom) * s;
  } else {
    const double k = config_.decay_step_size == 0 ? 0 : (i - total + 1) / config_.decay_step_size;
    result.lr = min / (1 + config_.decay_lr_rate * k);
    beta1 = max_mom * (1 + config_.decay_mom_rate * k);
  }
  if (cycles_betas_) {
    result.beta1 = beta1;
    result.beta2 = 0.99;
  }
}

double Schedule::cycle_position() const {
  const double first = config_.cycle_first_step_size;
  const double second = config_.cycle_second_step_size.value_or(first);
  const double total = first + second;
  const double b = static_cast<double>(iteration_) + 1;
  const double x = b / total - std::floor(b / total);
  const double rho = first / total;
  const bool rising = x <= rho;
  const auto count = static_cast<double>(
      rising ? config_.cycle_first_stair_count
             : config_.cycle_second_stair_count.value_or(config_.cycle_first_stair_count));
  if (count <= 0) return rising ? x / rho : (x - 1) / (rho - 1);
  // From the whole number of steps: x may lie just below a stair that the step has reached.
  const double c = std::fmod(b, total);
  return std::floor(c <= first ? c * count / first : (total - c) * count / second) / count;
}

double Schedule::range_test_lr(size_t group) const {
  const double k =
      (static_cast<double>(iteration_) + 1) / static_cast<double>(config_.lr_range_test_step_size);
  const double interval = config_.lr_range_test_staircase ? std::floor(k) : k;
  return of_group(config_.lr_range_test_min_lr, group) * (1 + config_.lr_range_test_step_rate * interval);
}

}  // namespace aliquot
