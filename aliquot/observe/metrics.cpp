#include "aliquot/observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

/// Keeps what an earlier run wrote, under the next free number.
void set_aside(const fs::path& file) {
  if (!fs::exists(file) || fs::file_size(file) == 0) return;
  for (int number = 1;; ++number) {
    const fs::path kept = file.parent_path() / fmt::format("metrics.{}.jsonl", number);
    if (fs::exists(kept)) continue;
    std::error_code error;
    fs::rename(file, kept, error);
    if (error)
      throw IoError(fmt::format("cannot rename {} to {}: {}", file.string(), kept.string(), error.message()));
    return;
  }
}

/// The length of `file` up to and with its last newline.
int64_t length_of_whole_lines(const fs::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  int64_t length = in.tellg();
  for (; length > 0; --length) {
    in.seekg(length - 1);
    if (in.get() == '\n') break;
  }
  return length;
}

AppendFile open_metrics(const fs::path& file, MetricsWriter::Start start) {
  if (start == MetricsWriter::Start::fresh) set_aside(file);
  AppendFile opened(file);
  if (opened.size() > 0) opened.truncate(length_of_whole_lines(file));
  return opened;
}

}  // namespace

MetricsWriter::MetricsWriter(fs::path folder, Start start)
    : folder_(std::move(folder)), file_(open_metrics(folder_ / "metrics.jsonl", start)) {}

void MetricsWriter::write(const StepRecord& record) {
  file_.append(to_json(record) + "\n");
  const bool first = totals_.steps == 0;
  totals_.steps = record.step;
  totals_.skipped_steps += record.skipped ? 1 : 0;
  totals_.samples = record.samples;
  totals_.tokens = record.tokens;
  totals_.loss = record.loss;
  if (record.eval_loss) {
    totals_.eval_loss = record.eval_loss;
    totals_.best_eval_loss = std::min(*record.eval_loss, totals_.best_eval_loss.value_or(*record.eval_loss));
  }
  if (!first && record.tokens_per_s > 0) {
    ++timed_steps_;
    seconds_per_token_ += 1 / record.tokens_per_s;
    matmul_percent_ += record.matmul_percent;
  }
  for (const auto& [place, memory] : record.memory) {
    PlaceMemory& peak = totals_.memory[place];
    peak.total = {memory.total.current, std::max(peak.total.peak, memory.total.peak)};
    for (const auto& [kind, use] : memory.kinds)
      peak.kinds[kind] = {use.current, std::max(peak.kinds[kind].peak, use.peak)};
  }
}

RunSummary MetricsWriter::finish(RunSummary summary) const {
  summary.steps = totals_.steps;
  summary.skipped_steps = totals_.skipped_steps;
  summary.samples = totals_.samples;
  summary.tokens = totals_.tokens;
  summary.loss = totals_.loss;
  summary.eval_loss = totals_.eval_loss;
  summary.best_eval_loss = totals_.best_eval_loss;
  summary.memory = totals_.memory;
  summary.records_lost = file_.lost();
  if (timed_steps_ > 0) {
    summary.tokens_per_s = static_cast<double>(timed_steps_) / seconds_per_token_;
    summary.matmul_percent = matmul_percent_ / static_cast<double>(timed_steps_);
  }
  try {
    replace_file(folder_ / "summary.json", to_json(summary) + "\n");
  } catch (const IoError& error) {
    log::warn("{}", error.what());
  }
  return summary;
}

std::vector<StepRecord> read_metrics(const fs::path& file) {
  std::ifstream in(file);
  if (!in)
    throw IoError(fmt::format("cannot read {}; a run writes it into its output folder", file.string()));
  std::map<int64_t, StepRecord> by_step;
  for (std::string line; std::getline(in, line);) {
    try {
      StepRecord record = parse_record(line);
      by_step[record.step] = std::move(record);
    } catch (const IoError&) {
      continue;  // half a line of a killed run
    }
  }
  std::vector<StepRecord> records;
  records.reserve(by_step.size());
  for (auto& [step, record] : by_step) records.push_back(std::move(record));
  return records;
}

}  // namespace aliquot
