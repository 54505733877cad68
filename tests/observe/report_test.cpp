#include "aliquot/observe/curves.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "aliquot/observe/chart.h"
#include "tests/observe/scratch.h"

namespace aliquot {
namespace {

using Report = Scratch;

size_t count_of(const std::string& text, const std::string& piece) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(piece, at)) != std::string::npos; at += piece.size()) ++count;
  return count;
}

/// The JSON that a chart hands to the page's script.
nlohmann::json data_of(const std::string& figure) {
  const std::string open = "<script type=\"application/json\">";
  const size_t begin = figure.find(open) + open.size();
  return nlohmann::json::parse(figure.substr(begin, figure.find("</script>", begin) - begin));
}

StepRecord record_of(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 5.5 * std::exp(-0.01 * static_cast<double>(step));
  if (step % 20 == 0) record.eval_loss = record.loss + 0.1;
  record.grad_norm = 1;
  record.tokens_per_s = 40000;
  record.ms = {{"forward", 100}, {"backward", 210}, {"total", 350}};
  record.memory["device"] = {{3 << 20, 5 << 20},
                             {{"params", {1 << 20, 1 << 20}}, {"grads", {2 << 20, 4 << 20}}}};
  record.memory["host"] = {{1, 1}, {{"moments", {1, 1}}}};
  return record;
}

RC_GTEST_PROP(Chart, TicksAreRoundAndCoverTheRange, ()) {
  const double low = *rc::gen::inRange(-1000000, 1000000) / 997.0,
               span = *rc::gen::inRange(1, 1000000) / 991.0;
  const auto ticks = round_ticks(low, low + span, 5);
  RC_ASSERT(ticks.size() >= 2U && ticks.size() <= 7U);
  RC_ASSERT(ticks.front() <= low + 1e-6 * span);
  RC_ASSERT(ticks.back() >= low + span - 1e-6 * span);
  const double step = ticks[1] - ticks[0], leading = step / std::pow(10, std::floor(std::log10(step) + 1e-9));
  RC_ASSERT(std::abs(leading - 1) < 1e-6 || std::abs(leading - 2) < 1e-6 || std::abs(leading - 5) < 1e-6);
}

TEST(ChartTest, ThinningKeepsSpikesOrderAndGaps) {
  Series series;
  for (int i = 0; i < 100000; ++i) {
    series.x.push_back(i);
    series.y.push_back(std::sin(i));
  }
  series.y[31234] = 1e6;
  series.y[71234] = -1e6;
  series.y[51234] = std::nan("");
  const Series thinned = thin(series, 100);
  EXPECT_LE(thinned.x.size(), 200U);
  EXPECT_TRUE(std::is_sorted(thinned.x.begin(), thinned.x.end()));
  EXPECT_EQ(std::count(thinned.y.begin(), thinned.y.end(), 1e6), 1);
  EXPECT_EQ(std::count(thinned.y.begin(), thinned.y.end(), -1e6), 1);
  EXPECT_EQ(std::count_if(thinned.y.begin(), thinned.y.end(), [](double y) { return std::isnan(y); }), 1);
  EXPECT_EQ(thin(thinned, 100).x, thinned.x);
}

TEST(ChartTest, DrawsWhatIsFiniteAndSaysWhatIsNot) {
  const std::string figure = render({.title = "Loss <x>",
                                     .from_zero = false,
                                     .series = {{"a", {1, 2, 3, 4}, {1, std::nan(""), 3, HUGE_VAL}}}});
  EXPECT_NE(figure.find("Loss &lt;x&gt;"), std::string::npos);
  EXPECT_EQ(figure.find("nan"), std::string::npos);
  EXPECT_EQ(figure.find("inf"), std::string::npos);
  const auto data = data_of(figure);
  EXPECT_EQ(data["series"][0]["y"], nlohmann::json::parse("[1, null, 3, null]"));
  const size_t curve = figure.find("class=\"curve\"");
  EXPECT_EQ(count_of(figure.substr(curve, figure.find("/>", curve) - curve), "M"), 2U);
}

TEST(ChartTest, SinglePointsAndFlatLinesAreDrawn) {
  for (const double value : {0.0, -3.0, 1e-30, 1e30}) {
    const std::string figure = render({.title = "t", .series = {{"a", {5}, {value}}, {"b", {5}, {value}}}});
    EXPECT_EQ(count_of(figure, "class=\"curve\""), 2U) << value;
    EXPECT_EQ(figure.find("nan"), std::string::npos) << figure;
    EXPECT_EQ(figure.find("inf"), std::string::npos) << figure;
    data_of(figure);
  }
  EXPECT_NE(render({.title = "t", .series = {{"a", {}, {}}}}).find("nothing recorded"), std::string::npos);
  EXPECT_NE(render({.title = "t", .series = {{"a", {1}, {std::nan("")}}}}).find("nothing recorded"),
            std::string::npos);
}

TEST(ChartTest, BytesAreShownInTheirUnit) {
  const std::string figure = render(
      {.title = "Memory", .unit = Unit::bytes, .series = {{"params", {1, 2}, {3.0 * (1 << 30), 1 << 30}}}});
  EXPECT_NE(figure.find("<small>GiB</small>"), std::string::npos);
  EXPECT_EQ(data_of(figure)["series"][0]["y"], nlohmann::json::parse("[3, 1]"));
}

TEST_F(Report, HasAChartForEachCurveAndNeedsNothingBesideItself) {
  MetricsWriter writer(folder_);
  for (int64_t step = 1; step <= 100; ++step) writer.write(record_of(step));
  const RunSummary summary =
      writer.finish({.model = "gpt2-tiny & co", .dtype = "bf16", .parameters = 900000, .world = 2});
  write_report(folder_, summary);
  const std::string page = read(folder_ / "report.html");
  for (const char* title :
       {"<figcaption>Loss", "<figcaption>Tokens per second", "<figcaption>Memory on device",
        "<figcaption>Memory on host", "<figcaption>Time by phase", "<figcaption>Gradient norm"})
    EXPECT_EQ(count_of(page, title), 1U) << title;
  for (const char* name : {"held out", "params", "moments", "backward"})
    EXPECT_GE(count_of(page, name), 2U) << name;
  EXPECT_NE(page.find("<h1>gpt2-tiny &amp; co</h1>"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_LT(page.size(), 100000U);
  const auto memory = data_of(page.substr(page.find("<figcaption>Memory on device")));
  std::vector<std::string> names;
  for (const auto& series : memory.at("series")) names.push_back(series.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"total", "grads", "params"}));
  EXPECT_EQ(memory.at("unit"), "MiB");
  EXPECT_EQ(memory.at("series")[1].at("y").size(), 100U);
  EXPECT_EQ(memory.at("series")[1].at("y")[99], 4);
}

TEST_F(Report, StaysSmallForLongRuns) {
  std::vector<StepRecord> records;
  for (int64_t step = 1; step <= 20000; ++step) records.push_back(record_of(step));
  EXPECT_LT(report_page({}, records).size(), 400000U);
}

TEST_F(Report, OfARunWithoutSteps) {
  const std::string page = report_page({}, {});
  EXPECT_NE(page.find("nothing recorded"), std::string::npos);
}

TEST_F(Report, WithoutMetricsIsAWarning) {
  write_report(folder_, {});
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_NE(messages_[0].find("the report is missing"), std::string::npos);
}

}  // namespace
}  // namespace aliquot
