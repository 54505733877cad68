// `aliquot train` as a whole: real ranks, a small model, and the ways in which a run can end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "aliquot/cli/master_port.h"
#include "tests/cli/command.h"

namespace aliquot::test {
namespace {

namespace fs = std::filesystem;

class Train : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    std::string text;
    for (int i = 0; i < 4000; ++i) text += "line " + std::to_string(i * i) + " of a small text\n";
    data_ = folder_.write("text.txt", text);
    config_ = folder_.write("ds.json", R"({
      "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  }

  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> out{program("aliquot"),
                                 "train",
                                 "--model",
                                 "gpt2-tiny",
                                 "--data",
                                 data_,
                                 "--config",
                                 config_,
                                 "--out",
                                 (folder_.path() / "run").string(),
                                 "--seq-len",
                                 "32",
                                 "--eval-rows",
                                 "8"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  nlohmann::json summary() const { return nlohmann::json::parse(folder_.read("run/summary.json")); }

  int metrics_lines() const {
    const std::string text = folder_.read("run/metrics.jsonl");
    return static_cast<int>(std::ranges::count(text, '\n'));
  }

  /// The ranks of a launcher, by pid; empty until they have started.
  static std::vector<pid_t> ranks_of(pid_t launcher) {
    std::vector<pid_t> out;
    std::ifstream children("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                           "/children");
    for (pid_t pid = 0; children >> pid;) out.push_back(pid);
    return out;
  }

  static std::string last_line(const std::string& text) {
    const std::string trimmed = text.substr(0, text.find_last_not_of('\n') + 1);
    return trimmed.substr(trimmed.rfind('\n') + 1);
  }

  TemporaryFolder folder_;
  std::string data_, config_;
};

TEST_F(Train, TwoRanks) {
  const Outcome outcome = run(command({"--ranks", "2", "--steps", "4"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_EQ(summary()["world"], 2);
  EXPECT_EQ(summary()["steps"], 4);
  EXPECT_EQ(metrics_lines(), 4);
  for (const char* file : {"run/config.json", "run/model/config.json", "run/model/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(folder_.path() / file)) << file;
  }
  EXPECT_EQ(outcome.err.find("[rank"), std::string::npos) << outcome.err;
  const std::string start_up = outcome.out.substr(0, outcome.out.find("step 1/"));
  EXPECT_LE(std::ranges::count(start_up, '\n'), 40) << start_up;
}

// Dropout included: ranks that are processes have generators of their own.
TEST_F(Train, ActivationCheckpointingTrainsTheSameModel) {
  const std::string model = folder_.write("shape.json", R"({
      "model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_layer": 3, "n_embd": 32, "n_head": 2,
      "resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2})");
  const auto trained = [&](const std::string& block, const std::vector<std::string>& flags) {
    config_ = folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}})" +
                                           block + "}");
    std::vector<std::string> arguments = command({"--ranks", "2", "--steps", "3", "--eval-fraction", "0"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::ranges::replace(arguments, std::string("gpt2-tiny"), model);
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto config = nlohmann::json::parse(folder_.read("run/config.json"));
    EXPECT_EQ(config.contains("activation_checkpointing"), !block.empty() || !flags.empty());
    return folder_.read("run/model/model.safetensors");
  };
  const std::string plain = trained("", {});
  EXPECT_FALSE(plain.empty());
  EXPECT_TRUE(trained(R"(, "activation_checkpointing": {"number_checkpoints": 2})", {}) == plain);
  EXPECT_TRUE(trained("", {"--activation-checkpointing"}) == plain);
}

TEST_F(Train, ErrorOfARankIsSaidOnceAndLast) {
  std::vector<std::string> arguments = command({"--ranks", "2"});
  std::ranges::replace(arguments, data_, (folder_.path() / "nowhere.txt").string());
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_TRUE(std::regex_search(last_line(outcome.err),
                                std::regex("^aliquot: rank [01] failed first: .*nowhere.txt")))
      << outcome.err;
  EXPECT_EQ(outcome.err.find("nowhere.txt"), outcome.err.rfind("nowhere.txt")) << outcome.err;
}

TEST_F(Train, CtrlCEndsWithTheSummary) {
  Command job(command({"--ranks", "2", "--steps", "1000000"}));
  ASSERT_TRUE(eventually([&] { return metrics_lines() >= 2; }, 30)) << job.err();
  job.signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  EXPECT_EQ(summary()["status"], "interrupted");
  EXPECT_EQ(summary()["steps"], metrics_lines());
  EXPECT_TRUE(fs::exists(folder_.path() / "run/model/model.safetensors"));
}

TEST_F(Train, KilledRankEndsTheJob) {
  Command job(command({"--ranks", "3", "--steps", "1000000"}));
  ASSERT_TRUE(eventually([&] { return metrics_lines() >= 1; }, 30)) << job.err();
  const std::vector<pid_t> ranks = ranks_of(job.pid());
  ASSERT_EQ(ranks.size(), 3U);
  const double killed = now();
  kill(ranks[1], SIGKILL);
  const Outcome outcome = job.wait();
  EXPECT_LT(now() - killed, 5);
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_TRUE(last_line(outcome.err).starts_with("aliquot: rank 1 failed first: killed by SIGKILL"))
      << outcome.err;
  for (const pid_t pid : ranks) EXPECT_FALSE(exists(pid));
}

TEST_F(Train, JoinsWhereAnotherLauncherSays) {
  const MasterPort port;
  const auto rank = [&](const std::string& r) {
    return std::vector<std::string>{"OMPI_COMM_WORLD_RANK=" + r, "OMPI_COMM_WORLD_SIZE=2",
                                    "OMPI_COMM_WORLD_LOCAL_RANK=" + r, "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                    "MASTER_PORT=" + std::to_string(port.number())};
  };
  Command first(command({"--steps", "2"}), rank("0"));
  Command second(command({"--steps", "2"}), rank("1"));
  const Outcome one = first.wait(), two = second.wait();
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out, "");
  EXPECT_EQ(summary()["world"], 2);
}

TEST_F(Train, JoinsUnderTorchrun) {
  const char* source = std::getenv("ALIQUOT_SOURCE");
  const std::string torchrun = std::string(source == nullptr ? "." : source) + "/.venv/bin/torchrun";
  if (!fs::exists(torchrun)) GTEST_SKIP() << "no " << torchrun;
  std::vector<std::string> arguments{torchrun, "--standalone", "--nproc-per-node", "2", "--no-python"};
  std::ranges::copy(command({"--steps", "2"}), std::back_inserter(arguments));
  const Outcome outcome = Command(arguments).wait(60);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(summary()["world"], 2);
}

TEST_F(Train, RanksOfAnotherLauncherAreItsOwnBusiness) {
  const Outcome outcome = run(command({"--ranks", "2"}), {"RANK=0", "WORLD_SIZE=1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "aliquot: --ranks 2, but RANK has started 1; leave --ranks out\n");
  const Outcome half = run(command({}), {"WORLD_SIZE=2"});
  EXPECT_EQ(half.code, 2);
  EXPECT_NE(half.err.find("RANK is not set"), std::string::npos) << half.err;
}

// LibTorch with Gloo is known to abort now and then while a process exits.
TEST_F(Train, EndsCleanlyEveryTime) {
  for (const char* backend : {"shm", "gloo"}) {
    for (int i = 0; i < 5; ++i) {
      const Outcome outcome =
          run(command({"--ranks", "2", "--steps", "1", "--eval-fraction", "0", "--backend", backend}));
      ASSERT_EQ(outcome.code, 0) << backend << " " << i << "\n" << outcome.err;
    }
  }
}

}  // namespace
}  // namespace aliquot::test
