// aliquot bench io as a person runs it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/store/scratch_folder.h"

namespace aliquot::test {
namespace {

Outcome bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{program("aliquot"), "bench", "io"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run(all);
}

TEST(BenchIo, EveryRowIsThereAndNoFileStays) {
  const ScratchFolder folder;
  const std::string first = folder.path() / "a", second = folder.path() / "b";
  // Five blocks over two paths: one has a block more.
  const Outcome outcome = bench({"--path", first, "--path", second, "--bytes", "327680", "--block-size",
                                 "65536", "--queue-depth", "3", "--rounds", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::set<std::string> ways;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    ways.insert(row.at("operation").get<std::string>() + " " + row.at("way").get<std::string>());
    EXPECT_EQ(row.at("block_size"), 65536);
    EXPECT_EQ(row.at("paths"), 2);
    EXPECT_GT(row.at("least"), 0.0);
    EXPECT_LE(row.at("least"), row.at("gb_per_s"));
    EXPECT_LE(row.at("gb_per_s"), row.at("most"));
  }
  EXPECT_EQ(ways,
            (std::set<std::string>{"copy memory", "read raw", "read store", "write raw", "write store"}));
  EXPECT_TRUE(std::filesystem::is_empty(first));
  EXPECT_TRUE(std::filesystem::is_empty(second));
}

TEST(BenchIo, SaysWhatItCannotMeasure) {
  const ScratchFolder folder;
  const std::string path = folder.path();
  const Outcome odd = bench({"--path", path, "--block-size", "5000"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.err.find("--block-size 5000: expected a multiple of 4096"), std::string::npos) << odd.err;
  const Outcome part = bench({"--path", path, "--bytes", "5000000"});
  EXPECT_EQ(part.code, 2);
  EXPECT_NE(part.err.find("expected a multiple of --block-size 1048576"), std::string::npos) << part.err;
  const Outcome full = bench({"--path", path, "--bytes", "1125899906842624"});
  EXPECT_NE(full.code, 0);
  EXPECT_NE(full.err.find("bytes are free"), std::string::npos) << full.err;
  const Outcome none = bench({"--path", "/dev/null"});
  EXPECT_NE(none.code, 0);
  EXPECT_NE(none.err.find("/dev/null: nvme_path must be a folder"), std::string::npos) << none.err;
  EXPECT_TRUE(std::filesystem::is_empty(path));
}

}  // namespace
}  // namespace aliquot::test
