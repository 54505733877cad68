// `aliquot train` with a stand-in for the ranks: who prints what, who ends whom, and that nothing is left
// behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fstream>

#include "tests/cli/command.h"

namespace aliquot::test {
namespace {

class Launcher : public testing::Test {
 protected:
  // What is left behind by a launcher comes to us, so that its end does not depend on the system's init.
  void SetUp() override { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }

  Command start(int ranks, const std::string& act, std::vector<std::string> environment = {}) {
    const std::string config = folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
    environment.push_back("ACT=" + act);
    environment.push_back("ACT_DIR=" + folder_.path().string());
    environment.push_back("ALIQUOT_RANK_BIN=" + program("acting_rank"));
    return Command({program("aliquot"), "train", "--model", "gpt2-tiny", "--data", "none", "--config", config,
                    "--ranks", std::to_string(ranks)},
                   environment);
  }

  pid_t pid_of(const std::string& name) {
    pid_t pid = 0;
    EXPECT_TRUE(eventually([&] {
      return static_cast<bool>(std::ifstream(folder_.path() / ("pid." + name)) >> pid);
    })) << name
        << " has not started";
    return pid;
  }

  /// Every process that wrote its number is gone, zombies included.
  void expect_nothing_left() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (!entry.path().filename().string().starts_with("pid.")) continue;
      pid_t pid = 0;
      std::ifstream(entry.path()) >> pid;
      const auto gone = [pid] { return waitpid(pid, nullptr, WNOHANG) == pid || !exists(pid); };
      EXPECT_TRUE(eventually(gone, 2)) << entry.path().filename() << " " << pid << " is still there";
    }
  }

  static std::string last_line(const std::string& text) {
    const std::string trimmed = text.substr(0, text.find_last_not_of('\n') + 1);
    return trimmed.substr(trimmed.rfind('\n') + 1);
  }

  TemporaryFolder folder_;
};

TEST_F(Launcher, OutputOfRankZeroIsUntouched) {
  const Outcome outcome = start(3, "0:print to out,warn to err;1:warn one,tail two;2:print three").wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "to out\n");
  EXPECT_NE(outcome.err.find("\nto err\n"), std::string::npos) << outcome.err;
  for (const char* line : {"[rank 1] one\n", "[rank 1] two\n", "[rank 2] three\n"}) {
    EXPECT_NE(outcome.err.find(line), std::string::npos) << outcome.err;
  }
  expect_nothing_left();
}

TEST_F(Launcher, RanksAreToldWhoTheyAre) {
  const Outcome outcome =
      start(2,
            "0:env RANK,env WORLD_SIZE,env LOCAL_RANK,env LOCAL_WORLD_SIZE,env MASTER_ADDR,read;"
            "1:env RANK,env LOCAL_RANK,env MASTER_PORT")
          .wait();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out,
            "RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\nread -1\n");
  EXPECT_NE(outcome.err.find("[rank 1] RANK=1\n[rank 1] LOCAL_RANK=1\n[rank 1] MASTER_PORT="),
            std::string::npos);
}

TEST_F(Launcher, ThreadsAreSaidOnce) {
  const Outcome own = start(1, "0:env OMP_NUM_THREADS", {"OMP_NUM_THREADS=3"}).wait();
  EXPECT_EQ(own.out, "OMP_NUM_THREADS=3\n");
  EXPECT_NE(own.err.find("1 rank on this host, 3 threads each (OMP_NUM_THREADS)"), std::string::npos)
      << own.err;
  const Outcome many = start(600, "0:env OMP_NUM_THREADS").wait();
  EXPECT_EQ(many.code, 0) << last_line(many.err);
  EXPECT_EQ(many.out, "OMP_NUM_THREADS=1\n");
  expect_nothing_left();
}

TEST_F(Launcher, FailingRankEndsTheOthersAndSpeaksLast) {
  const Outcome outcome = start(3, "0:hang;1:sleep 0.2,report 1 no such thing as h.9.w;2:hang").wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 2);
  EXPECT_EQ(last_line(outcome.err), "aliquot: rank 1 failed first: no such thing as h.9.w");
  expect_nothing_left();
}

TEST_F(Launcher, LastLineStandsInForAReport) {
  const Outcome outcome = start(2, "0:hang;1:warn what(): it broke,exit 7").wait();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(last_line(outcome.err),
            "aliquot: rank 1 failed first: ended with exit code 7; its last line: what(): it broke");
  expect_nothing_left();
}

TEST_F(Launcher, PeersThatNoticeFirstAreNotBlamed) {
  // Ranks 0 and 2 see their peer die before it has died.
  const Outcome outcome =
      start(3, "0:report 3 rank 1 is gone;1:sleep 0.4,report 1 out of memory;2:report 3 rank 1 is gone")
          .wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(last_line(outcome.err), "aliquot: rank 1 failed first: out of memory");
  expect_nothing_left();
}

TEST_F(Launcher, SilentPeerIsNamedByTheOthers) {
  const Outcome outcome = start(2, "0:report 3 rank 1 has been silent for 600 s;1:hang").wait();
  EXPECT_EQ(outcome.code, 3);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_EQ(last_line(outcome.err), "aliquot: rank 0 failed first: rank 1 has been silent for 600 s");
  expect_nothing_left();
}

TEST_F(Launcher, OtherErrorsComeBefore) {
  const Outcome outcome =
      start(3,
            "0:sleep 0.3,report 1 first;1:ignore,sleep 0.5,report 1 second;2:ignore,sleep 0.6,report 1 first")
          .wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("rank 1 failed too: second\nrank 0 failed first: first\n"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("rank 2 failed"), std::string::npos) << outcome.err;
}

TEST_F(Launcher, LongReportsArriveWhole) {
  const Outcome outcome = start(1, "0:report-long 200000").wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(last_line(outcome.err), "aliquot: rank 0 failed first: " + std::string(200'000, 'x'));
}

TEST_F(Launcher, SignalsAreNamed) {
  const Outcome crash = start(2, "0:hang;1:warn at step 7,raise 11").wait();
  EXPECT_EQ(crash.code, 128 + SIGSEGV);
  EXPECT_EQ(last_line(crash.err),
            "aliquot: rank 1 failed first: killed by SIGSEGV (Segmentation fault); its last line: at step 7");
  const Outcome killed = start(2, "0:raise 9;1:hang").wait();
  EXPECT_EQ(killed.code, 128 + SIGKILL);
  EXPECT_NE(last_line(killed.err)
                .find("rank 0 failed first: killed by SIGKILL (Killed); by someone's hand, or by the "
                      "kernel because memory ran out (it held 0.0"),
            std::string::npos)
      << killed.err;
  expect_nothing_left();
}

TEST_F(Launcher, StubbornRanksAreKilledInTime) {
  const Outcome outcome = start(2, "0:ignore,hang;1:sleep 0.2,exit 1").wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_GT(outcome.seconds, 2);  // SIGTERM was given its time
  EXPECT_LT(outcome.seconds, 5);
  expect_nothing_left();
}

TEST_F(Launcher, StoppedRanksAreEndedToo) {
  Command job = start(2, "0:hang;1:hang");
  kill(pid_of("0"), SIGSTOP);
  kill(pid_of("1"), SIGKILL);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_LT(outcome.seconds, 5);
  expect_nothing_left();
}

TEST_F(Launcher, WhatARankStartedEndsWithIt) {
  const Outcome failed = start(2, "0:spawn,hang;1:spawn,sleep 0.2,exit 1").wait();
  EXPECT_EQ(failed.code, 1);
  expect_nothing_left();
  const Outcome fine = start(1, "0:spawn,sleep 0.2").wait();
  EXPECT_EQ(fine.code, 0);
  EXPECT_LT(fine.seconds, 2);
  expect_nothing_left();
}

TEST_F(Launcher, KilledLauncherLeavesNoRank) {
  Command job = start(3, "0:ignore,hang;1:ignore,hang;2:ignore,hang");
  for (const char* rank : {"0", "1", "2"}) pid_of(rank);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().code, -SIGKILL);
  expect_nothing_left();
}

TEST_F(Launcher, CtrlCStopsCleanly) {
  Command job = start(2, "0:await-stop,sleep 0.3,print summary;1:await-stop");
  pid_of("0"), pid_of("1");
  nap(0.1);
  job.signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 128 + SIGINT);
  EXPECT_EQ(outcome.out, "rank 0 stopped cleanly\nsummary\n");
  EXPECT_NE(outcome.err.find("[rank 1] rank 1 stopped cleanly"), std::string::npos);
  EXPECT_EQ(outcome.err.find("failed"), std::string::npos) << outcome.err;
  expect_nothing_left();
}

TEST_F(Launcher, TerminationStopsCleanlyToo) {
  Command job = start(2, "0:await-stop;1:await-stop");
  pid_of("0"), pid_of("1");
  job.signal(SIGTERM);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 128 + SIGTERM);
  EXPECT_EQ(outcome.out, "rank 0 stopped cleanly\n");
}

TEST_F(Launcher, SecondCtrlCEndsAtOnce) {
  Command job = start(2, "0:ignore,hang;1:ignore,hang");
  pid_of("0"), pid_of("1");
  nap(0.1);
  job.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return job.err().find("once more ends them at once") != std::string::npos; }));
  const double second = now();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 128 + SIGINT);
  EXPECT_LT(now() - second, 1);
  expect_nothing_left();
}

TEST_F(Launcher, FailureAfterCtrlCIsStillAFailure) {
  Command job = start(2, "0:await-stop,report 1 cannot write the summary;1:await-stop");
  pid_of("0"), pid_of("1");
  nap(0.1);
  job.signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(last_line(outcome.err), "aliquot: rank 0 failed first: cannot write the summary");
}

TEST_F(Launcher, CtrlZStopsTheRanksToo) {
  Command job = start(1, "0:hang");
  const pid_t rank = pid_of("0");
  const auto state = [](pid_t pid) {
    std::string text;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
    return text.at(text.rfind(')') + 2);
  };
  job.signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state(job.pid()) == 'T' && state(rank) == 'T'; }));
  job.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return state(job.pid()) == 'S' && state(rank) == 'S'; }));
}

TEST_F(Launcher, ProgramThatCannotRunIsNamed) {
  const std::string script = folder_.write("no-program", "not a program");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const std::string config = folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const std::vector<std::string> command{program("aliquot"), "train", "--model",  "gpt2-tiny",
                                         "--data",           "none",  "--config", config};
  const Outcome outcome = run(command, {"ALIQUOT_RANK_BIN=" + script});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_NE(last_line(outcome.err).find("cannot run " + script + ": Exec format error"), std::string::npos)
      << outcome.err;
  const Outcome missing = run(command, {"ALIQUOT_RANK_BIN=/nowhere/aliquot-rank"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.err.find("/nowhere/aliquot-rank: No such file"), std::string::npos) << missing.err;
}

TEST_F(Launcher, JoinsAsTheRankOfAnotherLauncher) {
  Command job = start(1, "5:env RANK,env MASTER_ADDR,report 4 x",
                      {"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                       "OMPI_COMM_WORLD_LOCAL_SIZE=2", "RANK=5"});
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.out, "RANK=5\nMASTER_ADDR=\nnobody to report to\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Launcher, BadInputStartsNothing) {
  const Outcome outcome =
      run({program("aliquot"), "train", "--model", "gpt2-tiny", "--data", "none", "--config",
           folder_.write("bad.json", R"({"zero_optimization": {"stag": 2}})")},
          {"ALIQUOT_RANK_BIN=" + program("acting_rank"), "ACT_DIR=" + folder_.path().string()});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("did you mean zero_optimization.stage?"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "pid.0"));
}

}  // namespace
}  // namespace aliquot::test
