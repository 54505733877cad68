// What is only arithmetic: units for people, limits, phase timers.

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "aliquot/observe/human.h"
#include "aliquot/observe/limits.h"
#include "aliquot/observe/timers.h"

namespace aliquot {
namespace {

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1000), "1000 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(10 * 1024 - 1), "10.0 KiB");
  EXPECT_EQ(human_bytes(123456789), "118 MiB");
  EXPECT_EQ(human_bytes((int64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(human_bytes(int64_t{3} << 60), "3072 PiB");
}

TEST(Human, Counts) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(999.9), "1.00k");
  EXPECT_EQ(human_count(41234), "41.2k");
  EXPECT_EQ(human_count(6738415616), "6.74B");
  EXPECT_EQ(human_count(std::numeric_limits<double>::infinity()), "?");
}

TEST(Human, Durations) {
  EXPECT_EQ(human_duration(0.4), "0s");
  EXPECT_EQ(human_duration(59.6), "1m00s");
  EXPECT_EQ(human_duration(192), "3m12s");
  EXPECT_EQ(human_duration(3840), "1h04m");
  EXPECT_EQ(human_duration(2.0 * 86400 + 3 * 3600 + 59), "2d03h");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_NE(human_duration(1e300), "?");
}

// PaLM's own example, appendix B: 540B parameters, 118 layers, width 12,288 (48 heads × 256), 2,048
// positions, 238.3k tokens/s on 6,144 chips of 275 TFLOP/s: 46.2 % with attention, 45.7 % without.
TEST(Limits, ReproducePalm) {
  const double limit = 6144 * 275e12;
  EXPECT_NEAR(percent_of_limit(flops_per_token(540'350'000'000, 118, 12288, 2048), 238.3e3, limit), 46.2,
              0.1);
  EXPECT_NEAR(percent_of_limit(flops_per_token(540'350'000'000, 0, 0, 0), 238.3e3, limit), 45.7, 0.1);
  EXPECT_EQ(percent_of_limit(1e9, 1e3, 0), 0);
}

TEST(PhaseTimers, AddUpFromAllThreadsAndBeginAgain) {
  using std::chrono::milliseconds;
  PhaseTimers timers;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) timers.add(Phase::reduce, milliseconds(2));
    });
  for (std::thread& thread : threads) thread.join();
  const auto ms = timers.take();
  EXPECT_DOUBLE_EQ(ms.at("reduce"), 8000);
  EXPECT_EQ(ms.size(), 2U);
  EXPECT_EQ(timers.take().count("reduce"), 0U);
}

TEST(PhaseTimers, ScopesTimeTheirLifetime) {
  PhaseTimers timers;
  {
    const PhaseTimers::Scope forward(timers, Phase::forward);
    const PhaseTimers::Scope gather(timers, Phase::gather);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto ms = timers.take();
  EXPECT_GE(ms.at("forward"), 5);
  EXPECT_GE(ms.at("forward"), ms.at("gather"));
  EXPECT_GE(ms.at("total"), ms.at("forward"));
}

TEST(PhaseTimers, PhasesHaveTheNamesOfTheMetrics) {
  EXPECT_EQ(name_of(Phase::forward), "forward");
  EXPECT_EQ(name_of(Phase::publish), "publish");
  EXPECT_EQ(name_of(Phase::eval), "eval");
}

}  // namespace
}  // namespace aliquot
