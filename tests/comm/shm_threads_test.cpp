// The shared-memory transport with ranks as threads of this process, which the thread sanitizer sees through.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "aliquot/comm/comm.h"
#include "aliquot/error.h"
#include "tests/comm/collectives.h"
#include "tests/support/ranks.h"

namespace aliquot {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;

/// The message of the CommError that `body` throws.
template <typename Body>
std::string comm_error(const Body& body) {
  try {
    body();
  } catch (const CommError& e) {
    return e.what();
  }
  throw std::runtime_error("no CommError");
}

class ShmThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ShmThreads, testing::Values(2, 3, 4));

TEST_P(ShmThreads, CollectivesCarryEveryByte) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  run_ranks(GetParam(), [&](const Comm& comm) { test::run_collectives(comm, seed, 1500, 700'000); });
}

TEST_P(ShmThreads, ABarrierIsNotPassedBeforeAllHaveCome) {
  std::atomic<int> come = 0;
  run_ranks(GetParam(), [&](const Comm& comm) {
    for (int i = 1; i <= 2000; ++i) {
      ++come;
      comm.barrier("count");
      test::expect(come >= i * comm.size(), "a rank was missing");
      comm.barrier("seen");
      test::expect(come <= (i + 1) * comm.size(), "a rank was ahead");
    }
  });
}

TEST_P(ShmThreads, ASharedSegmentShowsEveryRanksWrites) {
  run_ranks(GetParam(), [&](const Comm& comm) {
    const auto world = static_cast<size_t>(comm.size());
    const size_t part = 10'007;
    const auto segment = comm.share(part * world, "segment");
    test::expect(segment->bytes() == part * world, "size");
    for (size_t i = 0; i < segment->bytes(); ++i)
      test::expect(segment->read()[i] == std::byte{0}, "not zero");
    comm.barrier("read");
    for (int round = 0; round < 50; ++round) {
      for (size_t i = 0; i < part; ++i) {
        segment->write()[static_cast<size_t>(comm.rank()) * part + i] =
            test::byte_of(round, comm.rank(), 0, i);
      }
      comm.barrier("written");
      for (int r = 0; r < comm.size(); ++r) {
        test::check_bytes(segment->read() + static_cast<size_t>(r) * part, round, r, 0, part, "segment");
      }
      comm.barrier("read");
    }
  });
}

TEST_P(ShmThreads, ChannelsAreIndependent) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  run_ranks(GetParam(), [&](const Comm& comm) {
    const Comm first = comm.channel("first"), second = comm.channel("second");
    std::thread other([&] {
      test::run_collectives(second, seed + 1, 300, 300'000);
      second.share(100, "second")->write();
    });
    test::run_collectives(first, seed + 2, 300, 300'000);
    first.share(200, "first")->write();
    other.join();
    const Comm third = second.channel("third");
    test::run_collectives(third, seed + 3, 20, 1000);
  });
}

TEST(ShmThreads, AnEmptySegmentIsNone) {
  run_ranks(2, [](const Comm& comm) { EXPECT_EQ(comm.share(0, "nothing")->bytes(), 0U); });
}

TEST(ShmThreads, TrafficCountsWhatThisRankSent) {
  run_ranks(3, [](const Comm& comm) {
    std::vector<std::byte> data(100), all(300);
    comm.all_gather(data.data(), all.data(), 100, "gather");
    comm.broadcast(data.data(), 10, 1, "broadcast");
    const std::vector<size_t> sizes{1, 2, 3}, mine(3, sizes[static_cast<size_t>(comm.rank())]);
    comm.all_to_all(data.data(), sizes, all.data(), mine, "exchange");
    const Traffic traffic = comm.traffic(true);
    EXPECT_EQ(traffic.by_op.at("all_gather").bytes, 200);
    EXPECT_EQ(traffic.by_op.at("broadcast").bytes, comm.rank() == 1 ? 20 : 0);
    EXPECT_EQ(traffic.by_op.at("all_to_all").bytes,
              6 - static_cast<int64_t>(sizes[static_cast<size_t>(comm.rank())]));
    EXPECT_EQ(traffic.by_op.at("all_to_all").calls, 1);
    EXPECT_TRUE(comm.traffic(false).by_op.empty());
  });
}

TEST(ShmThreads, DifferentCallsAreNamedOnEveryRank) {
  struct Case {
    std::function<void(const Comm&, std::byte*)> rank0, others;
    const char *first, *second;
  };
  const Case cases[] = {
      {[](const Comm& c, std::byte*) { c.barrier("publish"); },
       [](const Comm& c, std::byte* p) { c.all_gather(p, p + 8, 8, "gather unit 3"); },
       "rank 0 is in barrier of 0 bytes (\"publish\")", "is in all_gather of 8 bytes (\"gather unit 3\")"},
      {[](const Comm& c, std::byte* p) { c.all_gather(p, p + 64, 8, "sizes"); },
       [](const Comm& c, std::byte* p) { c.all_gather(p, p + 64, 16, "sizes"); }, "all_gather of 8 bytes",
       "all_gather of 16 bytes"},
      {[](const Comm& c, std::byte* p) { c.broadcast(p, 8, 0, "w"); },
       [](const Comm& c, std::byte* p) { c.broadcast(p, 8, 1, "w"); }, "broadcast from rank 0",
       "broadcast from rank 1"},
      {[](const Comm& c, std::byte*) { c.barrier("unit 1"); },
       [](const Comm& c, std::byte*) { c.barrier("unit 2"); }, "unit 1", "unit 2"},
      {[](const Comm& c, std::byte*) { c.share(64, "s"); },
       [](const Comm& c, std::byte*) { c.share(128, "s"); }, "share of 64 bytes", "share of 128 bytes"},
      {[](const Comm& c, std::byte*) { c.channel("a"); }, [](const Comm& c, std::byte*) { c.barrier("b"); },
       "share of", "barrier"},
  };
  for (const Case& test_case : cases) {
    run_ranks(3, [&](const Comm& comm) {
      std::vector<std::byte> memory(1024);
      for (int i = 0; i < 3; ++i) comm.barrier("before");
      const std::string error =
          comm_error([&] { (comm.rank() == 0 ? test_case.rank0 : test_case.others)(comm, memory.data()); });
      EXPECT_NE(error.find("diverged at meeting 4"), std::string::npos) << error;
      // Ranks 1 and 2 agree with each other, so each names itself and rank 0.
      EXPECT_NE(error.find(test_case.first), std::string::npos) << error;
      EXPECT_NE(error.find(test_case.second), std::string::npos) << error;
      EXPECT_NE(comm_error([&] { comm.barrier("after"); }).find(error), std::string::npos);
    });
  }
}

TEST(ShmThreads, SizesThatDoNotFitAreNamedOnEveryRank) {
  run_ranks(2, [](const Comm& comm) {
    std::vector<std::byte> memory(64);
    const std::vector<size_t> send{8, 8}, recv{8, comm.rank() == 0 ? size_t{12} : size_t{8}};
    const std::string error = comm_error(
        [&] { comm.all_to_all(memory.data(), send, memory.data() + 32, recv, "reduce bucket 3"); });
    EXPECT_EQ(error, "reduce bucket 3: rank 1 sends 8 bytes to rank 0, which expects 12");
  });
}

TEST(ShmThreads, BadArgumentsLeaveTheCommAsItWas) {
  run_ranks(2, [](const Comm& comm) {
    std::byte data[8] = {};
    EXPECT_THROW(comm.broadcast(data, 8, 2, "w"), UsageError);
    EXPECT_THROW(comm.broadcast(data, 8, -1, "w"), UsageError);
    const std::vector<size_t> one{8};
    EXPECT_THROW(comm.all_to_all(data, one, data, one, "x"), UsageError);
    comm.barrier("goes on");
  });
}

TEST(ShmThreads, AnAbortReachesWhoeverWaits) {
  run_ranks(3, [](const Comm& comm) {
    const Comm channel = comm.channel("parameters");
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      comm.abort("h.0.mlp: out of memory");
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string error = comm_error([&] { (comm.rank() == 0 ? comm : channel).barrier("publish"); });
    EXPECT_EQ(error, "publish: rank 1 failed: h.0.mlp: out of memory");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  });
}

TEST(ShmThreads, ARankThatLeftIsNamed) {
  std::vector<Comm> comms = Comm::threads(2);
  std::thread other([comm = std::move(comms[1])] { comm.barrier("together"); });
  comms.pop_back();
  comms[0].barrier("together");
  other.join();
  const auto start = std::chrono::steady_clock::now();
  const std::string error = comm_error([&] { comms[0].barrier("alone"); });
  EXPECT_EQ(error.substr(0, error.find(';')), "alone: rank 1 has closed its connection");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST(ShmThreads, TheWordsOfARankThatFailsOutliveItsChannels) {
  run_ranks(2, [](const Comm& comm) {
    if (comm.rank() == 1) {
      { const Comm channel = comm.channel("parameters"); }
      std::this_thread::sleep_for(300ms);
      comm.abort("its own error");
      return;
    }
    const Comm channel = comm.channel("parameters");
    EXPECT_EQ(comm_error([&] { channel.barrier("publish"); }), "publish: rank 1 failed: its own error");
  });
}

TEST(ShmThreads, ASilentRankIsNamedAfterTheTimeout) {
  const std::vector<Comm> comms = Comm::threads(3, {.timeout = 300ms});
  std::thread other([comm = comms[0]] {
    const std::string error = comm_error([&] { comm.barrier("publish"); });
    EXPECT_EQ(error.find("publish: rank 0 waited 0.3 s for rank 2, alive but silent"), 0U) << error;
  });
  const std::string error = comm_error([&] { comms[1].barrier("publish"); });
  EXPECT_EQ(error.find("publish: rank 1 waited 0.3 s for rank 2"), 0U) << error;
  other.join();
}

TEST(ShmThreads, TwoThreadsInOneCommAreToldSo) {
  const std::vector<Comm> comms = Comm::threads(2);
  std::thread other([comm = comms[0]] { comm.barrier("waits"); });
  std::string error;
  while (error.empty()) {
    try {
      // Until the other thread is in, this one waits in its place, in vain, for a rank that is not there yet.
      std::this_thread::sleep_for(20ms);
      comms[0].broadcast(nullptr, 0, 0, "second");
    } catch (const UsageError& e) {
      error = e.what();
    }
  }
  EXPECT_NE(error.find("channel()"), std::string::npos);
  comms[1].barrier("waits");
  other.join();
}

TEST(ShmThreads, MoreMemoryThanThereIsIsAnErrorOnEveryRank) {
  run_ranks(2, [](const Comm& comm) {
    const std::string error = comm_error([&] { comm.share(size_t{1} << 50, "allocate parameters"); });
    EXPECT_EQ(error.find("allocate parameters: rank 0: shared memory: 1073741824.0 MiB are wanted"), 0U)
        << error;
  });
}

TEST(NullComm, IsOneRank) {
  const Comm comm;
  test::run_collectives(comm, 1, 50, 100'000);
  const auto segment = comm.share(10'000, "segment");
  segment->write()[9'999] = std::byte{7};
  EXPECT_EQ(segment->read()[9'999], std::byte{7});
  EXPECT_EQ(comm.channel("other").size(), 1);
  EXPECT_EQ(comm.backend(), "none");
  comm.abort("nobody hears it");
  comm.barrier("alone");
}

}  // namespace
}  // namespace aliquot
