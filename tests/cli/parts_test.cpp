// The launcher's parts that need no process.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "aliquot/cli/cores.h"
#include "aliquot/cli/failure_report.h"
#include "aliquot/cli/line_relay.h"
#include "aliquot/cli/master_port.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

struct Relayed {
  LineRelay relay;
  std::string out;
  Relayed() : relay("[rank 1] ", [this](std::string_view line) { out += line; }) {}
};

TEST(LineRelay, PassesWholeLinesHoweverTheyArrive) {
  const std::string text = "one\n\ntwo\r\nthree";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Relayed r;
    for (size_t at = 0; at < text.size(); at += piece) r.relay.feed(text.substr(at, piece));
    EXPECT_EQ(r.out, "[rank 1] one\n[rank 1] \n[rank 1] two\n") << piece;
    EXPECT_EQ(r.relay.last_line(), "two");
    r.relay.finish();
    r.relay.finish();
    EXPECT_EQ(r.out, "[rank 1] one\n[rank 1] \n[rank 1] two\n[rank 1] three\n");
    EXPECT_EQ(r.relay.last_line(), "three");
  }
}

TEST(LineRelay, BlankLinesAreNoLastLine) {
  Relayed r;
  r.relay.feed("why\n \t\n\n");
  EXPECT_EQ(r.relay.last_line(), "why");
}

TEST(LineRelay, EndlessLineIsCut) {
  Relayed r;
  for (int i = 0; i < 1000; ++i) r.relay.feed(std::string(1000, 'x'));
  const size_t held_back = size_t{64} << 10;
  EXPECT_GE(r.out.size(), 1'000'000 - held_back);
  r.relay.finish();
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(r.out, 'x')), 1'000'000);
}

TEST(FailureReport, OnlyWholeOnesCount) {
  const auto report = parse_report("3 11 rank 1\ndied");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->code, 3);
  EXPECT_EQ(report->message, "rank 1\ndied");
  for (const char* broken : {"", "3", "3 ", "3 11", "3 11 rank 1\ndie", "x 1 a", "3 -1 a"}) {
    EXPECT_FALSE(parse_report(broken)) << broken;
  }
}

TEST(Cores, QuotaOfAControlGroup) {
  EXPECT_EQ(parse_cpu_max("200000 100000"), 2.0);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max("max 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("-1 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
  EXPECT_EQ(parse_cpu_max(" "), std::nullopt);
  EXPECT_GE(usable_cores(), 1);
}

TEST(Threads, OfARank) {
  EXPECT_EQ(choose_threads(3, {{"OMP_NUM_THREADS", "7"}}, 16, 2).threads, 3);
  EXPECT_EQ(choose_threads(0, {{"OMP_NUM_THREADS", "7"}}, 16, 2).threads, 7);
  EXPECT_EQ(choose_threads(0, {{"OMP_NUM_THREADS", "4,2"}}, 16, 2).threads, 4);
  EXPECT_EQ(choose_threads(0, {{"SLURM_CPUS_PER_TASK", "5"}}, 5, 2).threads, 5);
  const ThreadChoice shared = choose_threads(0, {}, 16, 3);
  EXPECT_EQ(shared.threads, 5);
  EXPECT_EQ(shared.because, "16 cores / 3 ranks");
  EXPECT_EQ(choose_threads(0, {}, 2, 5).threads, 1);
  EXPECT_THROW(choose_threads(0, {{"OMP_NUM_THREADS", "all"}}, 2, 1), ConfigError);
  EXPECT_THROW(choose_threads(0, {{"OMP_NUM_THREADS", "0"}}, 2, 1), ConfigError);
}

TEST(MasterPort, IsHeldWhileItsObjectLives) {
  std::vector<MasterPort> ports;
  for (int i = 0; i < 50; ++i) ports.emplace_back();
  for (size_t i = 0; i < ports.size(); ++i) {
    EXPECT_GT(ports[i].number(), 1023);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ports[i].number(), ports[j].number());
  }
}

}  // namespace
}  // namespace aliquot
