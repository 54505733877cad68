#include "aliquot/reduce/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

namespace aliquot::test {
namespace {

TEST(Worker, RunsJobsInOrderAndWaitSeesAllOfThem) {
  Worker worker;
  std::vector<int> seen;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 20; ++i) worker.post([&seen, i] { seen.push_back(i); });
    worker.wait();
    ASSERT_EQ(seen.size(), 20U);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
    seen.clear();
  }
}

TEST(Worker, TheFirstFailureDropsWhatFollowsAndIsThrownOnce) {
  Worker worker;
  bool ran = false;
  worker.post([] { throw std::runtime_error("first"); });
  worker.post([&] { ran = true; });
  worker.post([] { throw std::runtime_error("third"); });
  try {
    worker.wait();
    FAIL() << "the failure is lost";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "first");
  }
  EXPECT_FALSE(ran);
  worker.post([&] { ran = true; });
  worker.wait();
  EXPECT_TRUE(ran);
}

TEST(Worker, EndsWithJobsWaiting) {
  std::atomic<int> ran{0};
  {
    Worker worker;
    for (int i = 0; i < 100; ++i) {
      worker.post([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++ran;
      });
    }
  }
  EXPECT_LT(ran, 100) << "what has not begun is dropped";
}

}  // namespace
}  // namespace aliquot::test
