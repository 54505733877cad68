#include "aliquot/observe/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "aliquot/error.h"
#include "aliquot/memory/meter.h"
#include "tests/observe/scratch.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using Metrics = Scratch;

StepRecord record_of(int64_t step) {
  StepRecord record;
  record.step = step;
  record.samples = 16 * step;
  record.tokens = 4096 * step;
  record.loss = 5.5 / static_cast<double>(step);
  record.lr = 3e-4;
  record.grad_norm = 0.83;
  record.clip_coefficient = 0.5;
  record.loss_scale = 65536;
  record.tokens_per_s = 41200;
  record.matmul_percent = 57;
  record.ms = {{"forward", 10.5}, {"backward", 21.25}, {"total", 40}};
  record.memory["device"] = {{300, 500}, {{"params", {100, 100}}, {"gathered", {0, 200}}}};
  record.bytes = {{"all_gather", int64_t{1} << 40}, {"reduce_scatter", 12}};
  return record;
}

TEST_F(Metrics, RecordsAreTheJsonThatTheDocumentationShows) {
  EXPECT_EQ(json::parse(to_json(record_of(2))), json::parse(R"({
    "step": 2, "samples": 32, "tokens": 8192, "loss": 2.75, "lr": 0.0003, "grad_norm": 0.83, "clip_coefficient": 0.5,
    "loss_scale": 65536.0, "skipped": false, "tokens_per_s": 41200.0, "matmul_percent": 57.0,
    "ms": {"forward": 10.5, "backward": 21.25, "total": 40.0},
    "memory": {"device": {"params": {"current": 100, "peak": 100}, "gathered": {"current": 0, "peak": 200},
                          "total": {"current": 300, "peak": 500}}},
    "bytes": {"all_gather": 1099511627776, "reduce_scatter": 12}})"));
}

TEST_F(Metrics, NumbersThatAreNotFiniteStayValidJsonAndAreNamed) {
  StepRecord record = record_of(1);
  record.loss = std::nan("");
  record.grad_norm = HUGE_VAL;
  record.eval_loss = -HUGE_VAL;
  record.skipped = true;
  record.skip_reason = "overflow in \"h.0\"\n\xff";
  const std::string line = to_json(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json parsed = json::parse(line);
  EXPECT_TRUE(parsed.at("loss").is_null());
  EXPECT_EQ(parsed.at("nonfinite"),
            json::parse(R"({"loss": "nan", "grad_norm": "inf", "eval_loss": "-inf"})"));
  EXPECT_EQ(parsed.at("skip_reason"), "overflow in \"h.0\"\n\xef\xbf\xbd");
  const StepRecord back = parse_record(line);
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_EQ(back.grad_norm, HUGE_VAL);
  EXPECT_EQ(back.eval_loss, -HUGE_VAL);
}

RC_GTEST_PROP(MetricsJson, AnyRecordIsOneLineAndReadBackAsItWas, ()) {
  const auto number = [] {
    return *rc::gen::weightedOneOf<double>(
        {{3, rc::gen::arbitrary<double>()},
         {1, rc::gen::element(std::nan(""), HUGE_VAL, -HUGE_VAL, 1e308, 5e-324)}});
  };
  StepRecord record;
  record.step = *rc::gen::positive<int64_t>();
  record.samples = *rc::gen::positive<int64_t>();
  record.tokens = *rc::gen::positive<int64_t>();
  record.loss = number();
  if (*rc::gen::arbitrary<bool>()) record.eval_loss = number();
  if (*rc::gen::arbitrary<bool>()) record.grad_norm = number();
  record.lr = number();
  record.loss_scale = number();
  record.tokens_per_s = number();
  record.skipped = *rc::gen::arbitrary<bool>();
  record.skip_reason = *rc::gen::string<std::string>();
  record.ms["forward"] = *rc::gen::arbitrary<double>();
  const std::string line = to_json(record);
  RC_ASSERT(line.find('\n') == std::string::npos);
  RC_ASSERT(json::accept(line));
  RC_ASSERT(to_json(parse_record(line)) == line);
  // memcmp's sense of equality: every bit of a NaN's sign aside.
  const StepRecord back = parse_record(line);
  RC_ASSERT(back.loss == record.loss || (std::isnan(back.loss) && std::isnan(record.loss)));
  RC_ASSERT(back.eval_loss.has_value() == record.eval_loss.has_value());
  RC_ASSERT(back.grad_norm.has_value() == record.grad_norm.has_value());
  RC_ASSERT(back.tokens == record.tokens);
}

TEST_F(Metrics, ParsingRefusesOtherLines) {
  for (const char* line : {"", "{}", "[1]", "{\"step\": 1", "{\"step\": \"x\"}", "null"})
    EXPECT_THROW(parse_record(line), IoError) << line;
}

TEST_F(Metrics, WritesALinePerStepAtOnce) {
  MetricsWriter writer(folder_);
  for (int64_t step = 1; step <= 3; ++step) {
    writer.write(record_of(step));
    EXPECT_EQ(read_metrics(folder_ / "metrics.jsonl").size(), static_cast<size_t>(step));
  }
}

TEST_F(Metrics, AFreshRunKeepsAnEarlierOnesLines) {
  for (int run = 0; run < 3; ++run) MetricsWriter(folder_).write(record_of(run + 1));
  EXPECT_EQ(read_metrics(folder_ / "metrics.1.jsonl").at(0).step, 1);
  EXPECT_EQ(read_metrics(folder_ / "metrics.2.jsonl").at(0).step, 2);
  EXPECT_EQ(read_metrics(folder_ / "metrics.jsonl").at(0).step, 3);
  EXPECT_EQ(read_metrics(folder_ / "metrics.jsonl").size(), 1U);
}

TEST_F(Metrics, AResumedRunContinuesAfterWholeLines) {
  {
    MetricsWriter writer(folder_);
    for (int64_t step = 1; step <= 4; ++step) writer.write(record_of(step));
  }
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << R"({"step":5,"lo)";
  MetricsWriter resumed(folder_, MetricsWriter::Start::resumed);
  StepRecord again = record_of(4);
  again.loss = 1.25;
  resumed.write(again);
  const std::vector<StepRecord> records = read_metrics(folder_ / "metrics.jsonl");
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[3].loss, 1.25);
  EXPECT_EQ(records[2].loss, record_of(3).loss);
  std::ifstream in(folder_ / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) EXPECT_TRUE(json::accept(line)) << line;
}

TEST_F(Metrics, SummaryCountsTheRun) {
  MetricsWriter writer(folder_);
  StepRecord warm_up = record_of(1);
  warm_up.tokens_per_s = 10;
  warm_up.memory["device"].total.peak = 900;
  writer.write(warm_up);
  StepRecord slow = record_of(2), fast = record_of(3);
  slow.tokens_per_s = 100, slow.matmul_percent = 10, slow.eval_loss = 2.5, slow.skipped = true;
  fast.tokens_per_s = 300, fast.matmul_percent = 30, fast.eval_loss = 2.75;
  writer.write(slow);
  writer.write(fast);
  RunSummary given;
  given.model = "gpt2-tiny";
  given.status = "interrupted";
  const RunSummary summary = writer.finish(given);
  EXPECT_EQ(summary.steps, 3);
  EXPECT_EQ(summary.skipped_steps, 1);
  EXPECT_EQ(summary.eval_loss, 2.75);
  EXPECT_EQ(summary.best_eval_loss, 2.5);
  // Equal numbers of tokens at 100 and 300 a second take 4 units of time for 2 · 300: 150 a second.
  EXPECT_NEAR(summary.tokens_per_s.value(), 150, 1e-9);
  EXPECT_NEAR(summary.matmul_percent.value(), 20, 1e-12);
  EXPECT_EQ(summary.memory.at("device").total.peak, 900);
  const json written = json::parse(read(folder_ / "summary.json"));
  EXPECT_EQ(written.at("status"), "interrupted");
  EXPECT_EQ(written.at("model"), "gpt2-tiny");
  EXPECT_EQ(written.at("steps"), 3);
  EXPECT_EQ(written.at("records_lost"), 0);
  EXPECT_EQ(written.at("memory").at("device").at("total").at("peak"), 900);
  EXPECT_FALSE(written.contains("error"));
}

TEST_F(Metrics, SummaryOfARunWithoutSteps) {
  const RunSummary summary = MetricsWriter(folder_).finish({});
  EXPECT_EQ(summary.steps, 0);
  const json written = json::parse(read(folder_ / "summary.json"));
  EXPECT_TRUE(written.at("loss").is_null());
  EXPECT_TRUE(written.at("tokens_per_s").is_null());
}

TEST_F(Metrics, ASummaryThatCannotBeWrittenIsAWarning) {
  MetricsWriter writer(folder_ / ".");
  fs::create_directory(folder_ / "summary.json");
  writer.finish({});
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_NE(messages_[0].find("summary.json"), std::string::npos);
}

TEST_F(Metrics, MissingFileIsNamed) {
  EXPECT_THROW(read_metrics(folder_ / "none.jsonl"), IoError);
}

TEST_F(Metrics, MemoryOfAMeter) {
  Meter meter;
  meter.add(Kind::params, Place::device, 100);
  meter.add(Kind::gathered, Place::device, 40);
  meter.remove(Kind::gathered, Place::device, 40);
  meter.add(Kind::moments, Place::host, 7);
  const auto memory = read_memory(meter);
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory.at("device").total.current, 100);
  EXPECT_EQ(memory.at("device").total.peak, 140);
  EXPECT_EQ(memory.at("device").kinds.at("gathered").current, 0);
  EXPECT_EQ(memory.at("device").kinds.at("gathered").peak, 40);
  EXPECT_EQ(memory.at("device").kinds.count("moments"), 0U);
  EXPECT_EQ(memory.at("host").kinds.at("moments").peak, 7);
}

}  // namespace
}  // namespace aliquot
