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
#include "aliquot/cli/room.h"
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
  const std::vector<MasterPort> ports(50);
  for (size_t i = 0; i < ports.size(); ++i) {
    EXPECT_GT(ports[i].number(), 1023);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ports[i].number(), ports[j].number());
  }
}

// Bytes a parameter by the usual formula, all ranks together; what lies on NVMe does not count.
TEST(Room, IsWhatTheStatesTake) {
  Config c;
  c.bf16.enabled = true;
  c.optimizer = OptimizerConfig{};
  const auto bytes = [&](int stage, int ranks) {
    c.zero.stage = stage;
    return host_states(c, 1000, ranks).total();
  };
  EXPECT_EQ(bytes(0, 4), 4 * 1000 * (2 + 4 + 12));
  EXPECT_EQ(bytes(1, 4), 1000 * (4 * (2 + 4) + 12));
  EXPECT_EQ(bytes(2, 4), 1000 * (4 * 2 + 4 + 12));
  EXPECT_EQ(bytes(3, 4), 1000 * (2 + 4 + 12));
  c.zero.offload_optimizer.device = c.zero.offload_param.device = OffloadDevice::nvme;
  c.zero.offload_param.max_in_cpu = 0;
  c.grad_accum_dtype = DType::bf16;
  EXPECT_EQ(bytes(3, 4), 1000 * 2);
  c = Config{};
  c.optimizer = OptimizerConfig{};
  EXPECT_EQ(bytes(0, 1), 1000 * (4 + 4 + 8));
}

TEST(Room, TellsWhatWouldNeedLess) {
  Config c;
  c.optimizer = OptimizerConfig{};
  EXPECT_EQ(room_problem("m", c, 1'000'000, 1, 17'000'000), "");
  const std::string text = room_problem("llama-7b", c, 6'700'000'000, 2, int64_t{21} << 30);
  EXPECT_NE(text.find("llama-7b does not fit: its states need 199.7 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("21.0 GiB are available"), std::string::npos) << text;
  EXPECT_LT(text.find("bf16;"), text.find("ZeRO stage 2")) << text;
  EXPECT_LT(text.find("ZeRO stage 2"), text.find("offload_optimizer")) << text;
}

}  // namespace
}  // namespace aliquot
