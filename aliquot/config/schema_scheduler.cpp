// The scheduler block: DeepSpeed's five schedules, whose names are compared exactly.
#include <fmt/format.h>

#include <algorithm>

#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

template <class T>
Store scheduler(T SchedulerConfig::*field) {
  return to(&Config::scheduler, field);
}

Key rates(std::string name, std::string fallback, std::string meaning,
          std::vector<double> SchedulerConfig::*field) {
  return numbers(std::move(name), std::move(fallback), std::move(meaning), scheduler(field)).in(at_least(0));
}

Key warmup_num_steps() {
  return integer("warmup_num_steps", "1000", "steps of the warm-up, at least 2 of them",
                 scheduler(&SchedulerConfig::warmup_num_steps))
      .in(at_least(1))
      .or_auto();
}
Key warmup_type() {
  return choice("warmup_type", {"log", "linear"}, "log", "shape of the warm-up",
                scheduler(&SchedulerConfig::warmup_type))
      .or_auto();
}
Key total_num_steps() {
  return integer("total_num_steps", "needed", "step at which the schedule ends",
                 scheduler(&SchedulerConfig::total_num_steps))
      .in(at_least(1))
      .or_auto();
}
Key warmup_min_lr() {
  return rates("warmup_min_lr", "0", "rate before the warm-up", &SchedulerConfig::warmup_min_lr).or_auto();
}
Key warmup_max_lr() {
  return rates("warmup_max_lr", "the optimizer's lr", "rate after the warm-up",
               &SchedulerConfig::warmup_max_lr)
      .or_auto()
      .or_null();
}

Section params(std::string type, std::vector<Key> keys) {
  return {.path = "scheduler.params", .types = {std::move(type)}, .keys = std::move(keys)};
}

Section one_cycle() {
  return params(
      "OneCycle",
      {
          rates("cycle_min_lr", "needed", "rate at the ends of the cycle", &SchedulerConfig::cycle_min_lr),
          rates("cycle_max_lr", "needed", "rate at its top", &SchedulerConfig::cycle_max_lr),
          number("decay_lr_rate", "0", "decay of the rate after the cycle",
                 scheduler(&SchedulerConfig::decay_lr_rate))
              .in(at_least(0)),
          number("cycle_first_step_size", "2000", "steps of the rise",
                 scheduler(&SchedulerConfig::cycle_first_step_size))
              .in(above(0)),
          number("cycle_second_step_size", "cycle_first_step_size", "steps of the fall",
                 scheduler(&SchedulerConfig::cycle_second_step_size))
              .in(at_least(0))
              .or_null(),
          integer("cycle_first_stair_count", "0", "stairs of the rise; 0 or less: none",
                  scheduler(&SchedulerConfig::cycle_first_stair_count)),
          integer("cycle_second_stair_count", "cycle_first_stair_count", "stairs of the fall",
                  scheduler(&SchedulerConfig::cycle_second_stair_count))
              .or_null(),
          number("decay_step_size", "0", "steps of one unit of decay; 0: no decay",
                 scheduler(&SchedulerConfig::decay_step_size))
              .in(at_least(0)),
          boolean("cycle_momentum", "true", "momentum (β₁) cycles against the rate",
                  scheduler(&SchedulerConfig::cycle_momentum)),
          numbers("cycle_min_mom", "0.8", "momentum at the top of the cycle",
                  scheduler(&SchedulerConfig::cycle_min_mom))
              .in(fraction()),
          numbers("cycle_max_mom", "0.9", "momentum at its ends", scheduler(&SchedulerConfig::cycle_max_mom))
              .in(fraction()),
          number("decay_mom_rate", "0", "growth of momentum after the cycle",
                 scheduler(&SchedulerConfig::decay_mom_rate))
              .in(at_least(0)),
      });
}

Section lr_range_test() {
  return params(
      "LRRangeTest",
      {
          rates("lr_range_test_min_lr", "1e-3", "rate at the start", &SchedulerConfig::lr_range_test_min_lr),
          integer("lr_range_test_step_size", "2000", "steps of one unit",
                  scheduler(&SchedulerConfig::lr_range_test_step_size))
              .in(at_least(1)),
          number("lr_range_test_step_rate", "1.0", "growth of the rate per unit",
                 scheduler(&SchedulerConfig::lr_range_test_step_rate))
              .in(at_least(0)),
          boolean("lr_range_test_staircase", "false", "grow once a unit instead of every step",
                  scheduler(&SchedulerConfig::lr_range_test_staircase)),
      });
}

const std::vector<std::pair<std::string, SchedulerKind>>& kinds() {
  static const std::vector<std::pair<std::string, SchedulerKind>> all = {
      {"WarmupLR", SchedulerKind::warmup},
      {"WarmupDecayLR", SchedulerKind::warmup_decay},
      {"WarmupCosineLR", SchedulerKind::warmup_cosine},
      {"OneCycle", SchedulerKind::one_cycle},
      {"LRRangeTest", SchedulerKind::lr_range_test}};
  return all;
}

}  // namespace

std::optional<SchedulerKind> scheduler_named(const std::string& type) {
  for (const auto& [name, kind] : kinds()) {
    if (name == type) return kind;
  }
  return std::nullopt;
}

std::string about_scheduler(const std::string& type) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds()) names.push_back(name);
  const std::string near = nearest(type, names);
  return fmt::format("no such schedule (torch's own are not supported); expected {}{}",
                     "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest",
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

const Section& scheduler_params(SchedulerKind kind) {
  for (const Section& s : sections()) {
    if (s.path == "scheduler.params" && scheduler_named(s.types.front()) == kind) return s;
  }
  return section("scheduler.params");
}

std::vector<Section> scheduler_sections() {
  Section block_section{.path = "scheduler", .types = {}, .keys = {}};
  block_section.keys = {
      text("type", "needed", "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest"),
      block("params", "parameters of that schedule"),
  };
  return {std::move(block_section),
          params("WarmupLR", {warmup_min_lr(), warmup_max_lr(), warmup_num_steps(), warmup_type()}),
          params("WarmupDecayLR",
                 {total_num_steps(), warmup_min_lr(), warmup_max_lr(), warmup_num_steps(), warmup_type()}),
          params("WarmupCosineLR",
                 {total_num_steps(),
                  number("warmup_min_ratio", "0", "share of the optimizer's lr before the warm-up",
                         scheduler(&SchedulerConfig::warmup_min_ratio))
                      .in(at_least(0))
                      .or_auto(),
                  warmup_num_steps(),
                  number("cos_min_ratio", "1e-4", "share of the optimizer's lr at the end",
                         scheduler(&SchedulerConfig::cos_min_ratio))
                      .in(at_least(0))
                      .or_auto(),
                  warmup_type()}),
          one_cycle(),
          lr_range_test()};
}

}  // namespace aliquot::schema
