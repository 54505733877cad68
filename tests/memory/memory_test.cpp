#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "aliquot/memory/buffer.h"
#include "aliquot/memory/debug.h"
#include "aliquot/memory/meter.h"

namespace aliquot::test {
namespace {

TEST(Buffer, IsZeroAlignedAndCountedWhileItLives) {
  const auto meter = std::make_shared<Meter>();
  // Small ones come from the heap, large ones are mappings of their own.
  for (const int64_t bytes : {1, 63, 64, 65, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20}) {
    SCOPED_TRACE(bytes);
    {
      const Buffer buffer(meter, Kind::moments, bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0U);
      const std::span<const std::byte> all(buffer.data(), static_cast<size_t>(bytes));
      EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{0}; }));
      EXPECT_EQ(meter->current(Kind::moments, Place::host), bytes);
    }
    EXPECT_EQ(meter->current(Kind::moments, Place::host), 0);
    EXPECT_EQ(meter->peak(Kind::moments, Place::host), bytes);
  }
}

TEST(Buffer, AnEmptyOneHoldsAndCountsNothing) {
  const auto meter = std::make_shared<Meter>();
  const Buffer none, zero(meter, Kind::params, 0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_EQ(meter->current(Place::host), 0);
}

TEST(Buffer, MovesKeepMemoryAndCount) {
  const auto meter = std::make_shared<Meter>();
  Buffer a(meter, Kind::master, 100);
  std::byte* const memory = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  EXPECT_EQ(meter->current(Kind::master, Place::host), 100);
  Buffer c(meter, Kind::grads, 7);
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(meter->current(Kind::master, Place::host), 100);
  c = Buffer();
  b = Buffer();
  EXPECT_EQ(meter->current(Place::host), 0);
}

TEST(Buffer, ScratchIsPoisonedOnRequestAndStatesNever) {
  debug::set_poisoning(true);
  const Buffer scratch(nullptr, Kind::staging, 10, Buffer::Use::scratch), state(nullptr, Kind::master, 10);
  debug::set_poisoning(false);
  EXPECT_EQ(scratch.as<float>()[0], 7777.0F);
  EXPECT_EQ(scratch.as<float>()[1], 7777.0F);
  EXPECT_EQ(state.as<float>()[0], 0.0F);
}

TEST(Meter, PeakIsOfTheSumNotTheSumOfPeaks) {
  Meter meter;
  meter.add(Kind::grads, Place::host, 100);
  meter.remove(Kind::grads, Place::host, 100);
  meter.add(Kind::buckets, Place::host, 60);
  meter.add(Kind::buckets, Place::nvme, 1000);
  EXPECT_EQ(meter.peak(Kind::grads, Place::host), 100);
  EXPECT_EQ(meter.peak(Kind::buckets, Place::host), 60);
  EXPECT_EQ(meter.peak(Place::host), 100);
  EXPECT_EQ(meter.current(Place::host), 60);
  EXPECT_EQ(meter.current(Place::nvme), 1000);
  meter.reset_peaks();
  EXPECT_EQ(meter.peak(Kind::grads, Place::host), 0);
  EXPECT_EQ(meter.peak(Place::host), 60);
}

TEST(Meter, LosesNothingBetweenThreads) {
  Meter meter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        meter.add(Kind::gathered, Place::device, 3);
        meter.remove(Kind::gathered, Place::device, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meter.current(Kind::gathered, Place::device), 40'000);
  EXPECT_GE(meter.peak(Place::device), 40'000);
  EXPECT_LE(meter.peak(Place::device), 40'012);
}

TEST(Names, AreThoseOfTheMetrics) {
  EXPECT_EQ(name_of(Kind::params), "params");
  EXPECT_EQ(name_of(Kind::staging), "staging");
  EXPECT_EQ(name_of(Place::device), "device");
  EXPECT_EQ(name_of(Place::nvme), "nvme");
}

}  // namespace
}  // namespace aliquot::test
