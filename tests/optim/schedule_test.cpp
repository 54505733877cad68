// What the goldens do not show of the schedules: their shapes in words, loading, and refusals.
#include "aliquot/optim/schedule.h"

#include "aliquot/error.h"
#include "testing.h"

namespace aliquot {
namespace {

SchedulerConfig warmup(SchedulerKind kind, int64_t steps, WarmupType type = WarmupType::log) {
  SchedulerConfig config;
  config.kind = kind;
  config.warmup_num_steps = steps;
  config.warmup_type = type;
  return config;
}

SchedulerConfig one_cycle(double first) {
  SchedulerConfig config;
  config.kind = SchedulerKind::one_cycle;
  config.cycle_min_lr = {0.01};
  config.cycle_max_lr = {0.1};
  config.cycle_first_step_size = first;
  return config;
}

const std::vector<Schedule::Group> kOne{{1e-3, 0.9, 0.999}};
const std::vector<Schedule::Group> kTwo{{0.1, 0.9, 0.999}, {0.2, 0.8, 0.99}};

TEST(Schedule, NoneKeepsEachGroupsOwn) {
  Schedule schedule(SchedulerConfig{}, kTwo, true);
  for (int i = 0; i < 5; ++i) schedule.step();
  EXPECT_EQ(schedule.lr(0), 0.1);
  EXPECT_EQ(schedule.lr(1), 0.2);
  EXPECT_EQ(schedule.betas(1), (std::pair{0.8, 0.99}));
}

// DeepSpeed's unit test: .1 → .2, exact from step N on.
TEST(Schedule, WarmupReachesItsPeakExactly) {
  for (const int64_t n : {10, 15, 19, 33}) {
    for (const WarmupType type : {WarmupType::log, WarmupType::linear}) {
      SchedulerConfig config = warmup(SchedulerKind::warmup, n, type);
      config.warmup_min_lr = {0.1};
      config.warmup_max_lr = {0.2};
      Schedule schedule(config, kOne, true);
      for (int64_t i = 0; i <= n; ++i) schedule.step();
      for (int i = 0; i < 5; ++i, schedule.step()) EXPECT_EQ(schedule.lr(0), 0.2) << n;
    }
  }
}

TEST(Schedule, FirstTwoStepsOfWarmupRunAtTheMinimum) {
  Schedule schedule(warmup(SchedulerKind::warmup, 10), kOne, true);
  EXPECT_EQ(schedule.lr(0), 0);
  schedule.step();
  EXPECT_EQ(schedule.lr(0), 0);
  schedule.step();
  EXPECT_GT(schedule.lr(0), 0);
}

// user-pains J3: no peak of 0.001 that nobody asked for.
TEST(Schedule, PeakIsTheOptimizersOwnRateUnlessGiven) {
  for (const SchedulerKind kind :
       {SchedulerKind::warmup, SchedulerKind::warmup_decay, SchedulerKind::warmup_cosine}) {
    SchedulerConfig config = warmup(kind, 5);
    config.total_num_steps = 1000;
    Schedule schedule(config, {{5e-7, 0.9, 0.999}, {3.0, 0.9, 0.999}}, true);
    double peak[2] = {};
    for (int i = 0; i < 20; ++i, schedule.step()) {
      for (const size_t g : {0, 1}) peak[g] = std::max(peak[g], schedule.lr(g));
    }
    EXPECT_NEAR(peak[0], 5e-7, 1e-11);
    EXPECT_NEAR(peak[1], 3.0, 1e-4);
  }
}

TEST(Schedule, DecayFallsStrictlyToTheEndAndStays) {
  for (const SchedulerKind kind : {SchedulerKind::warmup_decay, SchedulerKind::warmup_cosine}) {
    SchedulerConfig config = warmup(kind, 10);
    config.total_num_steps = 20;
    config.cos_min_ratio = 0;
    Schedule schedule(config, kOne, true);
    for (int i = 0; i < 11; ++i) schedule.step();
    for (int i = 11; i < 20; ++i) {
      const double before = schedule.lr(0);
      schedule.step();
      EXPECT_LT(schedule.lr(0), before) << i;
    }
    for (int i = 0; i < 5; ++i) {
      schedule.step();
      EXPECT_EQ(schedule.lr(0), 0);
    }
  }
}

// DeepSpeed's unit test: after one step.
TEST(Schedule, OneCycleRisesWhileItsMomentumFalls) {
  Schedule schedule(one_cycle(10), kOne, true);
  EXPECT_EQ(schedule.lr(0), 0.01);
  EXPECT_EQ(schedule.betas(0), (std::pair{0.8, 0.99}));
  schedule.step();
  EXPECT_NEAR(schedule.lr(0), 0.01 + 0.09 * 0.1, 1e-15);
  schedule.step();
  EXPECT_NEAR(schedule.lr(0), 0.01 + 0.09 * 0.2, 1e-15);
  EXPECT_NEAR(schedule.betas(0).first, 0.9 - 0.1 * 0.2, 1e-15);
}

TEST(Schedule, OneCycleLeavesBetasAloneWhereThereAreNoneOrItIsToldTo) {
  SchedulerConfig config = one_cycle(4);
  Schedule without(config, kOne, false);
  config.cycle_momentum = false;
  Schedule off(config, kOne, true);
  for (int i = 0; i < 10; ++i, without.step(), off.step()) {
    EXPECT_EQ(without.betas(0), (std::pair{0.9, 0.999}));
    EXPECT_EQ(off.betas(0), (std::pair{0.9, 0.999}));
  }
}

// user-pains J1: rates after a resume, the very next one included.
TEST(Schedule, LoadingAnIterationGivesItsRatesAtOnce) {
  for (const SchedulerKind kind :
       {SchedulerKind::warmup, SchedulerKind::warmup_decay, SchedulerKind::warmup_cosine,
        SchedulerKind::one_cycle, SchedulerKind::lr_range_test}) {
    SchedulerConfig config = one_cycle(7);
    config.kind = kind;
    config.warmup_num_steps = 5;
    config.total_num_steps = 30;
    Schedule whole(config, kTwo, true);
    for (int i = 0; i < 40; ++i, whole.step()) {
      Schedule resumed(config, kTwo, true);
      resumed.load_state(whole.last_batch_iteration());
      for (const size_t g : {0, 1}) {
        EXPECT_EQ(resumed.lr(g), whole.lr(g));
        EXPECT_EQ(resumed.betas(g), whole.betas(g));
      }
    }
  }
}

void expect_refused(const SchedulerConfig& config, const std::string& key) {
  try {
    Schedule schedule(config, kOne, true);
    ADD_FAILURE() << key << " accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("scheduler.params." + key + ":"), std::string::npos) << e.what();
  }
}

TEST(Schedule, RefusesListsOfAnotherLength) {
  const std::vector<double> two{1e-3, 1e-3};
  SchedulerConfig config = warmup(SchedulerKind::warmup, 5);
  config.warmup_max_lr = two;
  expect_refused(config, "warmup_max_lr");
  config = warmup(SchedulerKind::warmup_decay, 5);
  config.warmup_min_lr = two;
  expect_refused(config, "warmup_min_lr");
  config = one_cycle(5);
  config.cycle_max_lr = two;
  expect_refused(config, "cycle_max_lr");
  config = one_cycle(5);
  config.cycle_min_mom = two;
  expect_refused(config, "cycle_min_mom");
  config = one_cycle(5);
  config.cycle_min_lr = {};
  expect_refused(config, "cycle_min_lr");
  config.kind = SchedulerKind::lr_range_test;
  config.lr_range_test_min_lr = two;
  expect_refused(config, "lr_range_test_min_lr");
}

TEST(Schedule, RefusesSizesWithoutMeaning) {
  expect_refused(warmup(SchedulerKind::warmup, 0), "warmup_num_steps");
  expect_refused(warmup(SchedulerKind::warmup_cosine, -5), "warmup_num_steps");
  expect_refused(one_cycle(0), "cycle_first_step_size");
  SchedulerConfig config = one_cycle(5);
  config.cycle_second_step_size = -1;
  expect_refused(config, "cycle_second_step_size");
  config.kind = SchedulerKind::lr_range_test;
  config.lr_range_test_step_size = -5;
  expect_refused(config, "lr_range_test_step_size");
}

}  // namespace
}  // namespace aliquot
