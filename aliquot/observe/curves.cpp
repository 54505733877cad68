#include "aliquot/observe/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/observe/append_file.h"
#include "aliquot/observe/chart.h"
#include "aliquot/observe/human.h"
#include "aliquot/observe/report_style.h"

namespace aliquot {

namespace {

using Records = std::vector<StepRecord>;

/// The curve of a quantity that some records may not have.
Series curve(std::string name, const Records& records,
             const std::function<std::optional<double>(const StepRecord&)>& value) {
  Series series{.name = std::move(name)};
  for (const StepRecord& record : records)
    if (const auto y = value(record)) {
      series.x.push_back(static_cast<double>(record.step));
      series.y.push_back(*y);
    }
  return series;
}

double greatest_of(const Series& series) {
  double greatest = 0;
  for (const double y : series.y) greatest = std::max(greatest, std::isfinite(y) ? y : 0);
  return greatest;
}

/// The legend's order is then the curves' own, from the top.
void sort_by_size(std::vector<Series>& series) {
  std::stable_sort(series.begin(), series.end(),
                   [](const Series& a, const Series& b) { return greatest_of(a) > greatest_of(b); });
}

Chart loss_chart(const Records& records) {
  Chart chart{.title = "Loss", .from_zero = false};
  chart.series.push_back(curve("training", records, [](const StepRecord& r) { return r.loss; }));
  Series held_out = curve("held out", records, [](const StepRecord& r) { return r.eval_loss; });
  if (!held_out.x.empty()) chart.series.push_back(std::move(held_out));
  return chart;
}

Chart single(std::string title, Unit unit, const Records& records,
             const std::function<std::optional<double>(const StepRecord&)>& value) {
  Series series = curve(title, records, value);
  return {.title = std::move(title), .unit = unit, .series = {std::move(series)}};
}

Chart phase_chart(const Records& records) {
  std::set<std::string> phases;
  for (const StepRecord& record : records)
    for (const auto& [phase, ms] : record.ms) phases.insert(phase);
  Chart chart{.title = "Time by phase", .unit = Unit::milliseconds};
  for (const std::string& phase : phases) {
    Series series = curve(phase, records, [&](const StepRecord& r) -> std::optional<double> {
      const auto found = r.ms.find(phase);
      return found == r.ms.end() ? 0 : found->second;
    });
    series.neutral = phase == "total";
    chart.series.push_back(std::move(series));
  }
  sort_by_size(chart.series);
  return chart;
}

std::optional<double> memory_peak(const StepRecord& record, const std::string& place,
                                  const std::string& kind) {
  const auto found = record.memory.find(place);
  if (found == record.memory.end()) return std::nullopt;
  if (kind.empty()) return static_cast<double>(found->second.total.peak);
  const auto use = found->second.kinds.find(kind);
  return use == found->second.kinds.end() ? 0 : static_cast<double>(use->second.peak);
}

Chart memory_chart(const Records& records, const std::string& place, const std::set<std::string>& kinds) {
  const auto peaks_of = [&](const std::string& name, const std::string& kind) {
    return curve(name, records, [&](const StepRecord& r) { return memory_peak(r, place, kind); });
  };
  Chart chart{.title = fmt::format("Memory on {}, peak of rank 0", place), .unit = Unit::bytes};
  for (const std::string& kind : kinds) chart.series.push_back(peaks_of(kind, kind));
  chart.series.push_back(peaks_of("total", ""));
  chart.series.back().neutral = true;
  sort_by_size(chart.series);
  return chart;
}

/// A chart for each place that held anything; peaks of each step, by kind and of their sum.
std::vector<Chart> memory_charts(const Records& records) {
  std::map<std::string, std::set<std::string>> kinds;
  for (const StepRecord& record : records)
    for (const auto& [place, memory] : record.memory)
      for (const auto& [kind, use] : memory.kinds) kinds[place].insert(kind);
  std::vector<Chart> charts;
  charts.reserve(kinds.size());
  for (const auto& [place, names] : kinds) charts.push_back(memory_chart(records, place, names));
  return charts;
}

std::string figure(std::string_view name, std::string_view value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape_html(value));
}

std::string key_figures(const RunSummary& summary) {
  std::string figures = figure("steps", fmt::format("{}", summary.steps));
  figures += figure("tokens", human_count(static_cast<double>(summary.tokens)));
  if (summary.loss) figures += figure("loss", fmt::format("{:.3f}", *summary.loss));
  if (summary.eval_loss) figures += figure("held-out loss", fmt::format("{:.3f}", *summary.eval_loss));
  if (summary.tokens_per_s) figures += figure("tokens/s", human_count(*summary.tokens_per_s));
  if (summary.matmul_percent.value_or(0) > 0)
    figures += figure("of matmul limit", fmt::format("{:.0f} %", *summary.matmul_percent));
  for (const auto& [place, memory] : summary.memory)
    figures += figure("peak on " + place, human_bytes(memory.total.peak));
  figures += figure("time", human_duration(summary.seconds));
  if (summary.skipped_steps > 0) figures += figure("skipped steps", fmt::format("{}", summary.skipped_steps));
  return figures;
}

std::string headline(const RunSummary& summary) {
  return fmt::format("{} parameters in {}, ZeRO stage {}, {} {}, batch {} × {} tokens, seed {}; {}{}",
                     human_count(static_cast<double>(summary.parameters)), summary.dtype, summary.zero_stage,
                     summary.world, summary.world == 1 ? "rank" : "ranks", summary.train_batch_size,
                     summary.seq_len, summary.seed, summary.status,
                     summary.error.empty() ? "" : ": " + summary.error);
}

}  // namespace

std::string report_page(const RunSummary& summary, const Records& records) {
  std::string charts = render(loss_chart(records));
  charts += render(
      single("Tokens per second", Unit::count, records, [](const StepRecord& r) { return r.tokens_per_s; }));
  for (const Chart& chart : memory_charts(records)) charts += render(chart);
  charts += render(phase_chart(records));
  charts +=
      render(single("Gradient norm", Unit::number, records, [](const StepRecord& r) { return r.grad_norm; }));
  const std::string title = escape_html(summary.model);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title>\n<style>{1}</style></head>\n<body><header>"
      "<h1>{0}</h1><p>{2}</p></header>\n<dl>{3}</dl>\n<main>{4}</main>\n<script>{5}</script></body></html>\n",
      title, kReportStyle, escape_html(headline(summary)), key_figures(summary), charts, kReportScript);
}

void write_report(const std::filesystem::path& folder, const RunSummary& summary) try {
  replace_file(folder / "report.html", report_page(summary, read_metrics(folder / "metrics.jsonl")));
} catch (const IoError& error) {
  log::warn("the report is missing: {}", error.what());
}

}  // namespace aliquot
