// The shared-memory transport between processes: that it carries the bytes, and what a rank is told when
// another one ends or stops.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "aliquot/comm/peers.h"
#include "tests/comm/collectives.h"
#include "tests/comm/processes.h"

namespace aliquot {
namespace {

using namespace std::chrono_literals;
using test::Processes;
using Clock = std::chrono::steady_clock;

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

size_t open_files() {
  return files_in("/proc/self/fd").size();
}

TEST(ShmProcesses, CollectivesCarryEveryByte) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const int world : {2, 3, 4}) {
    Processes ranks(world, 60s, [&](const Comm& comm) {
      test::run_collectives(comm, seed, 1000, 700'000);
      return "done";
    });
    for (int r = 0; r < world; ++r) EXPECT_EQ(ranks.result(r), "done");
  }
}

TEST(ShmProcesses, SegmentsAndChannelsLeaveNothingBehind) {
  const std::set<std::string> before = files_in("/dev/shm");
  Processes ranks(3, 60s, [](const Comm& comm) {
    const size_t files = open_files();
    for (int i = 0; i < 20; ++i) {
      const auto segment = comm.share(1 << 20, "segment");
      segment->write()[static_cast<size_t>(comm.rank())] = std::byte{1};
      const Comm channel = comm.channel("channel");
      channel.barrier("written");
      for (size_t r = 0; r < 3; ++r) test::expect(segment->read()[r] == std::byte{1}, "a write is missing");
      // A mapping needs no descriptor, a channel one or two sockets.
      test::expect(open_files() - files == (comm.rank() == 0 ? 2U : 1U), "a segment keeps a descriptor");
      comm.barrier("read");
    }
    test::expect(open_files() == files, "descriptors are left");
    return "done";
  });
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.result(r), "done");
  EXPECT_EQ(files_in("/dev/shm"), before);
}

TEST(ShmProcesses, AWriteToWhatIsReadOnlyIsAFault) {
  Processes ranks(2, 60s, [](const Comm& comm) {
    const auto segment = comm.share(8192, "segment");
    if (comm.rank() == 0) const_cast<std::byte*>(segment->read())[5000] = std::byte{1};
    return "done";
  });
  EXPECT_EQ(ranks.result(0), "signal 11");
  EXPECT_EQ(ranks.result(1), "done");
}

struct Operation {
  const char* name;
  std::function<void(const Comm&, std::vector<std::byte>&)> call;
};

class ShmDeath : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(
    Operations, ShmDeath,
    testing::Values(Operation{"barrier", [](const Comm& c, auto&) { c.barrier("step"); }},
                    Operation{"all_gather",
                              [](const Comm& c, auto& m) {
                                c.all_gather(m.data(), m.data() + (1 << 20), 1 << 20, "step");
                              }},
                    Operation{"all_to_all",
                              [](const Comm& c, auto& m) {
                                const std::vector<size_t> sizes(3, 300'000);
                                c.all_to_all(m.data(), sizes, m.data() + (1 << 20), sizes, "step");
                              }},
                    Operation{"broadcast",
                              [](const Comm& c, auto& m) { c.broadcast(m.data(), 1 << 20, 1, "step"); }},
                    Operation{"share", [](const Comm& c, auto&) { c.share(1 << 20, "step"); }},
                    Operation{"channel", [](const Comm& c, auto&) { c.channel("step"); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ShmDeath, OfAPeerIsNamedWithinTwoSeconds) {
  std::mt19937 random(std::random_device{}());
  for (int victim = 0; victim < 3; ++victim) {
    Processes ranks(3, 60s, [&](const Comm& comm) -> std::string {
      std::vector<std::byte> memory(4 << 20);
      while (true) GetParam().call(comm, memory);
    });
    ranks.wait_until_connected();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const auto start = Clock::now();
    ranks.signal(victim, SIGKILL);
    EXPECT_EQ(ranks.result(victim), "signal 9");
    const std::string dead = fmt::format("rank {} (pid {}) died", victim, ranks.pid(victim));
    int named = 0;
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      const std::string error = ranks.result(r);
      EXPECT_EQ(error.find("step: rank "), 0U) << error;
      // The second may see the first one end, which has said what it saw by ending.
      named += error.find(dead) != std::string::npos ? 1 : 0;
    }
    EXPECT_GE(named, 1);
    EXPECT_LT(Clock::now() - start, 2s);
  }
}

TEST(ShmProcesses, AStoppedPeerIsNamedAfterTheTimeout) {
  Processes ranks(2, 300ms, [](const Comm& comm) -> std::string {
    while (true) comm.barrier("publish");
  });
  ranks.wait_until_connected();
  ranks.signal(1, SIGSTOP);
  const std::string error = ranks.result(0);
  EXPECT_EQ(error.find("publish: rank 0 waited 0.3 s for rank 1 (pid "), 0U) << error;
  EXPECT_NE(error.find("stopped"), std::string::npos) << error;
}

TEST(ShmProcesses, APeerThatGoesOnAfterOthersGaveUpIsToldSo) {
  Processes ranks(2, 300ms, [](const Comm& comm) -> std::string {
    while (true) comm.barrier("publish");
  });
  ranks.wait_until_connected();
  ranks.signal(1, SIGSTOP);
  ranks.result(0);
  const auto start = Clock::now();
  ranks.signal(1, SIGCONT);
  const std::string error = ranks.result(1);
  EXPECT_NE(error.find("rank 0 (pid "), std::string::npos) << error;
  EXPECT_LT(Clock::now() - start, 2s);
}

TEST(ShmProcesses, AnAbortReachesTheOthersBeforeTheEndDoes) {
  for (int i = 0; i < 20; ++i) {
    Processes ranks(3, 60s, [](const Comm& comm) -> std::string {
      comm.barrier("start");
      if (comm.rank() == 2) {
        comm.abort("loss is not finite");
        return "aborted";
      }
      while (true) comm.barrier("publish");
    });
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.result(r), "publish: rank 2 failed: loss is not finite");
  }
}

// With pidfds and, as before Linux 5.3, without.
TEST(Peers, KnowWhoHasEnded) {
  for (const bool pidfds : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    const Peers peers({getpid(), child, 0}, pidfds);
    for (int r = 0; r < 4; ++r) EXPECT_FALSE(peers.ended(r));
    EXPECT_EQ(peers.name(0), "rank 0");
    EXPECT_EQ(peers.name(1), fmt::format("rank 1 (pid {})", child));
    EXPECT_EQ(peers.name(2), "rank 2");
    kill(child, SIGKILL);
    for (int i = 0; i < 2000 && !peers.ended(1); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(peers.ended(1)) << "while nobody has waited for it";
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(peers.ended(1));
    EXPECT_TRUE(Peers({0, child}, pidfds).ended(1));
  }
}

}  // namespace
}  // namespace aliquot
