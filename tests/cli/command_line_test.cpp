// The command line as a person meets it: exit codes, help, mistakes, and that `aliquot` needs no torch.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/cli/command.h"

namespace aliquot::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Outcome aliquot(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program("aliquot"));
  return run(arguments);
}

/// The options of all sub-commands with their types and defaults, one a line.
std::string all_options() {
  std::ostringstream out;
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {}, {"train"}, {"config"}, {"env"}, {"bench"}, {"bench", "io"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    std::istringstream help(aliquot(arguments).out);
    // An indented word, up to the gap before its explanation.
    const std::regex entry("^  ([^ ].*?)(  .*)?$");
    for (std::string line; std::getline(help, line);) {
      std::smatch match;
      if (std::regex_match(line, match, entry))
        out << fmt::format("{}{}{}\n", fmt::join(command, " "), command.empty() ? "" : " ", match.str(1));
    }
  }
  return out.str();
}

TEST(CommandLine, IsFrozen) {
  std::ostringstream stored;
  stored << std::ifstream(ALIQUOT_TEST_DATA "/command_line.txt").rdbuf();
  EXPECT_EQ(all_options(), stored.str()) << "Scripts depend on these. If the change is meant, store the new "
                                            "list in tests/golden/command_line.txt.";
}

TEST(CommandLine, EveryOptionIsExplained) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train"}, {"config"}, {"env"}, {"bench", "io"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Outcome help = aliquot(arguments);
    EXPECT_EQ(help.code, 0);
    const std::regex bare("^ +(-[^ ]+|[a-z]+)( [^ ]+)*\\n(?! {20})", std::regex::multiline);
    std::smatch match;
    EXPECT_FALSE(std::regex_search(help.out, match, bare)) << "unexplained: " << match.str();
  }
}

TEST(CommandLine, LinksNoTorch) {
  const Outcome libraries = run({"/usr/bin/ldd", program("aliquot")});
  ASSERT_EQ(libraries.code, 0) << libraries.err;
  ASSERT_TRUE(contains(libraries.out, "libc.so"));
  for (const char* library : {"libtorch", "libc10", "gomp", "mkl"})
    EXPECT_FALSE(contains(libraries.out, library)) << libraries.out;
}

TEST(CommandLine, MistakesAreExitCode2) {
  EXPECT_EQ(aliquot({}).code, 2);
  const Outcome unknown = aliquot({"tran"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(contains(unknown.err, "did you mean train?")) << unknown.err;
  const Outcome missing = aliquot({"train", "--model", "gpt2-tiny"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(contains(missing.err, "--data is required")) << missing.err;
  const std::vector<std::string> base{"train", "--model", "m", "--data", "d", "--config", "c"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return aliquot(arguments);
  };
  const Outcome typo = with({"--stpes", "7"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_TRUE(contains(typo.err, "There is no --stpes; did you mean --steps?")) << typo.err;
  const std::vector<std::vector<std::string>> wrong{
      {"--steps", "0", "--steps: 0: expected at least 1"},
      {"--steps", "many", "Could not convert: --steps = many"},
      {"--seq-len", "-1", "--seq-len: -1: expected at least 1"},
      {"--vocab-size", "99999999999999999999", "99999999999999999999: expected at least 1"},
      {"--ranks", "0", "--ranks: 0: expected 1 to 1024"},
      {"--eval-fraction", "0.9", "--eval-fraction: 0.9: expected 0 to 0.5"},
      {"--lr", "nan", "--lr: nan: expected at least 0"},
      {"--backend", "nccl", "--backend: nccl: expected auto, shm, gloo"},
      {"--data-format", "csv", "--data-format: csv: expected auto, text, llmc, nanogpt, megatron"}};
  for (const auto& option : wrong) {
    const Outcome outcome = with({option[0], option[1]});
    EXPECT_EQ(outcome.code, 2) << option[0];
    EXPECT_TRUE(contains(outcome.err, option[2])) << outcome.err;
  }
}

TEST(ConfigCommand, PrintsWhatWillBeObeyed) {
  const TemporaryFolder folder;
  const std::string file = folder.write("ds.json", R"({
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, // a comment
  })");
  const Outcome outcome = aliquot({"config", file, "--world", "4", "--model", "gpt2-tiny"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "\"gradient_accumulation_steps\": 2")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\"reduce_bucket_size\": 16384")) << outcome.out;  // 128²
  EXPECT_TRUE(contains(outcome.err, "zero_optimization.reduce_bucket_size")) << outcome.err;
  // What is printed is a file that gives the same again.
  const Outcome again = aliquot({"config", folder.write("resolved.json", outcome.out), "--world", "4"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, outcome.out);
}

TEST(ConfigCommand, ErrorsAreExitCode2) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("ds.json", R"({"train_batch_size": 3, "zero_optimisation": {"stage": 2}})");
  const Outcome outcome = aliquot({"config", file, "--world", "2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(contains(outcome.err, "ds.json:1:25: zero_optimisation")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "did you mean zero_optimization?")) << outcome.err;
  EXPECT_EQ(aliquot({"config", (folder.path() / "none.json").string()}).code, 2);
  EXPECT_EQ(aliquot({"config", folder.path().string()}).code, 2);
  EXPECT_EQ(aliquot({"config", folder.write("empty.json", "")}).code, 2);
  EXPECT_EQ(
      aliquot({"config", folder.write("ok.json", R"({"train_batch_size": 1})"), "--model", "gpt5"}).code, 2);
}

TEST(ConfigCommand, LenientMakesUnknownKeysWarnings) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("ds.json", R"({"train_batch_size": 2, "zero_optimisation": {"stage": 2}})");
  const Outcome outcome = aliquot({"config", file, "--lenient"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "zero_optimisation")) << outcome.err;
}

TEST(EnvCommand, SaysWhatIsHereAndWhatIsMissing) {
  const Outcome here = aliquot({"env"});
  EXPECT_EQ(here.code, 0) << here.err;
  for (const char* row : {"aliquot  ", "torch  ", "kernel  ", "cpu  ", "cpu features", "cores  ", "memory  ",
                          "huge pages", "memlock", "io_uring", "devices"}) {
    EXPECT_TRUE(contains(here.out, std::string("\n") + row) || here.out.starts_with(row)) << row << "\n"
                                                                                          << here.out;
  }
  const Outcome bare = run({program("aliquot"), "env"}, {"ALIQUOT_RANK_BIN=/nowhere/aliquot-rank"});
  EXPECT_EQ(bare.code, 0);
  EXPECT_TRUE(contains(bare.out, "Missing:\n  aliquot-rank: nothing can be trained; run `make setup`"))
      << bare.out;
}

}  // namespace
}  // namespace aliquot::test
