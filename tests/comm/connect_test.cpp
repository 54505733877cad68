// connect(), in processes started as a launcher starts them: who finds whom, what a rank says when the others
// do not come, fail, die or stop, and that everybody always ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>
#include <thread>

#include "aliquot/comm/shm_segment.h"

namespace aliquot {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A socket on a port of this host that was free.
struct Port {
  Port() : socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket.get(), generic, size), 0);
    EXPECT_EQ(getsockname(socket.get(), generic, &size), 0);
    number = ntohs(address.sin6_port);
  }
  shm::Fd socket;
  int number = 0;
};

class Process {
 public:
  Process(int rank, int world, int port, const std::string& arguments, const std::string& environment) {
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      const std::string command = "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(world) +
                                  " MASTER_PORT=" + std::to_string(port) + " " + environment +
                                  " exec \"$ALIQUOT_BIN\"/comm_rank " + arguments;
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = shm::Fd(out[0]);
    err_ = shm::Fd(err[0]);
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), out_(std::move(other.out_)), err_(std::move(other.err_)) {}
  ~Process() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  /// Waits for the end: the exit code, or minus the signal.
  int wait() {
    out = read_all(out_);
    err = read_all(err_);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  pid_t pid() const { return pid_; }

  std::string out, err;

 private:
  static std::string read_all(const shm::Fd& fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(fd.get(), buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

  pid_t pid_;
  shm::Fd out_, err_;
};

/// All ranks of `world`, with these arguments of comm_rank.
std::vector<Process> start(int world, const std::string& arguments, const std::string& environment = "") {
  const int port = Port().number;
  std::vector<Process> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, world, port, arguments, environment);
  return ranks;
}

class Connect : public testing::TestWithParam<std::string> {
 protected:
  std::string with(const std::string& task, int timeout_ms = 60'000) const {
    return GetParam() + " " + std::to_string(timeout_ms) + " 60000 " + task;
  }
};
#if ALIQUOT_HAS_GLOO
INSTANTIATE_TEST_SUITE_P(Backends, Connect, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });
#else
INSTANTIATE_TEST_SUITE_P(Backends, Connect, testing::Values("shm"),
                         [](const auto& info) { return info.param; });
#endif

TEST_P(Connect, CarriesEveryByte) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const int world : {2, 3}) {
    for (Process& rank : start(world, with("exchange " + std::to_string(seed)))) {
      EXPECT_EQ(rank.wait(), 0);
      EXPECT_EQ(rank.err, "");
      EXPECT_EQ(rank.out.find(GetParam()), 0U);
    }
  }
}

// A program may end anywhere: at the end of main, in exit() with the connection open, or having lost it.
TEST_P(Connect, EverybodyEndsCleanlyEveryTime) {
  for (int i = 0; i < 10; ++i) {
    for (Process& rank : start(2, with(i % 3 == 0 ? "exit" : i % 3 == 1 ? "leak" : "nothing"))) {
      EXPECT_EQ(rank.wait(), 0);
      EXPECT_EQ(rank.err, "");
    }
  }
}

TEST_P(Connect, DivergedRanksAreNamed) {
  for (Process& rank : start(2, with("diverge"))) {
    EXPECT_EQ(rank.wait(), 3);
    EXPECT_NE(rank.err.find("rank 0 is in broadcast from rank 0 of 8 bytes (\"weights\")"), std::string::npos)
        << rank.err;
    EXPECT_NE(rank.err.find("rank 1 is in broadcast from rank 0 of 16 bytes (\"weights\")"),
              std::string::npos)
        << rank.err;
  }
}

TEST_P(Connect, ARankThatFailsTellsTheOthersWhy) {
  for (Process& rank : start(3, with("abort"))) {
    EXPECT_EQ(rank.wait(), 3);
    EXPECT_TRUE(rank.err == "loss is not finite\n" ||
                rank.err == "publish: rank 0 failed: loss is not finite\n")
        << rank.err;
  }
}

TEST_P(Connect, ADeadRankIsNamedWithinTwoSeconds) {
  for (const int victim : {0, 1}) {
    std::vector<Process> ranks = start(2, with("kill " + std::to_string(victim)));
    Process &dead = ranks[static_cast<size_t>(victim)], &other = ranks[static_cast<size_t>(1 - victim)];
    const std::string name =
        "rank " + std::to_string(victim) + " (pid " + std::to_string(dead.pid()) + ") died";
    EXPECT_EQ(dead.wait(), -SIGKILL);
    const auto then = Clock::now();
    EXPECT_EQ(other.wait(), 3);
    EXPECT_LT(Clock::now() - then, 2s);
    EXPECT_EQ(other.err.find("publish: " + name), 0U) << other.err;
  }
}

TEST_P(Connect, AStoppedRankIsNamedAfterTheTimeout) {
  for (const int victim : {0, 1}) {
    std::vector<Process> ranks = start(2, with("stop " + std::to_string(victim), 500));
    Process& other = ranks[static_cast<size_t>(1 - victim)];
    EXPECT_EQ(other.wait(), 3);
    EXPECT_NE(other.err.find("rank " + std::to_string(victim) + " (pid "), std::string::npos) << other.err;
    EXPECT_EQ(other.err.find("publish: "), 0U) << other.err;
  }
}

// TCPStore alone tries again after half a second or more.
TEST(Connecting, ALateRankZeroCostsNothing) {
  double best_ms = 1e9;
  for (int i = 0; i < 3; ++i) {
    const int port = Port().number;
    Process other(1, 2, port, "shm 60000 60000 nothing", "");
    std::this_thread::sleep_for(1s);
    Process first(0, 2, port, "shm 60000 60000 nothing", "");
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(other.wait(), 0);
    std::istringstream words(first.out);
    std::string backend;
    double ms = 0;
    words >> backend >> ms;
    best_ms = std::min(best_ms, ms);
  }
  EXPECT_LT(best_ms, 300);
}

TEST(Connecting, APortInUseIsNamed) {
  const Port taken;
  ASSERT_EQ(listen(taken.socket.get(), 1), 0);
  Process rank(0, 2, taken.number, "shm 1000 1000 nothing", "");
  EXPECT_EQ(rank.wait(), 3);
  const std::string port = std::to_string(taken.number);
  EXPECT_EQ(rank.err, "rank 0 (by RANK): cannot open the rendezvous at 127.0.0.1:" + port + ": port " + port +
                          " is in use, perhaps by another job; set MASTER_PORT to a free one\n");
}

TEST(Connecting, AnAddressWhereNobodyListensIsNamed) {
  Process rank(1, 2, Port().number, "shm 1000 300 nothing", "");
  EXPECT_EQ(rank.wait(), 3);
  EXPECT_EQ(rank.err.find("rank 1 (by RANK): cannot reach the rendezvous at 127.0.0.1:"), 0U) << rank.err;
  EXPECT_NE(rank.err.find("MASTER_ADDR"), std::string::npos) << rank.err;
}

TEST(Connecting, RanksThatDoNotComeAreNamed) {
  const int port = Port().number;
  Process first(0, 4, port, "shm 1000 1500 nothing", ""), second(2, 4, port, "shm 1000 5000 nothing", "");
  EXPECT_EQ(first.wait(), 3);
  EXPECT_EQ(first.err, "rank 0: after 1.5 s these ranks of 4 have not joined: 1, 3\n");
  EXPECT_EQ(second.wait(), 3);
  EXPECT_NE(second.err.find("rank 2: "), std::string::npos) << second.err;
}

TEST(Connecting, AnUnknownBackendIsNamed) {
  Process rank(0, 2, 1, "nccl 1000 1000 nothing", "");
  EXPECT_EQ(rank.wait(), 3);
  EXPECT_EQ(rank.err, "backend \"nccl\" is unknown; expected auto, shm or gloo\n");
}

#if ALIQUOT_HAS_GLOO
TEST(Connecting, GloosInterfaceMayBeChosen) {
  for (Process& rank : start(2, "gloo 10000 10000 nothing", "GLOO_SOCKET_IFNAME=lo"))
    EXPECT_EQ(rank.wait(), 0) << rank.err;
  int named = 0;
  for (Process& rank : start(2, "gloo 10000 10000 nothing", "GLOO_SOCKET_IFNAME=nosuch0")) {
    EXPECT_EQ(rank.wait(), 3);
    const bool own = rank.err.find("GLOO_SOCKET_IFNAME") != std::string::npos &&
                     rank.err.find("nosuch0") != std::string::npos;
    // The store may end with rank 0 before the other rank has come so far.
    EXPECT_TRUE(own || rank.err.find("did rank 0 fail?") != std::string::npos) << rank.err;
    named += own ? 1 : 0;
  }
  EXPECT_GE(named, 1);
}
#endif

}  // namespace
}  // namespace aliquot
