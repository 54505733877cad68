// DIR/metrics.jsonl, a line per step, and DIR/summary.json at the end of the run.
//
// Both are strict JSON. A number that is not finite, which JSON has no word for, is null, and the record's
// "nonfinite" says which it was: {"loss": null, …, "nonfinite": {"loss": "nan"}}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aliquot/observe/append_file.h"
#include "aliquot/observe/record.h"

namespace aliquot {

/// The record as one line of JSON, without the newline.
std::string to_json(const StepRecord& record);

/// The record of a line that to_json wrote. Throws IoError when it is none.
StepRecord parse_record(const std::string& line);

/// What summary.json holds. The caller gives the first part, MetricsWriter counts the second.
struct RunSummary {
  std::string status = "finished";  ///< "finished", "interrupted" or "failed"
  std::string error{};              ///< of a failed run
  std::string model{}, dtype{};
  int64_t parameters = 0, world = 1, zero_stage = 0;
  int64_t seq_len = 0, train_batch_size = 0;
  uint64_t seed = 0;
  double seconds = 0;  ///< from the start of the process to here

  int64_t steps = 0, skipped_steps = 0, samples = 0, tokens = 0;
  std::optional<double> loss{};                            ///< of the last step
  std::optional<double> eval_loss{}, best_eval_loss{};     ///< the last computed, the least
  std::optional<double> tokens_per_s{}, matmul_percent{};  ///< over all steps but the first, which warms up
  std::map<std::string, PlaceMemory> memory{};             ///< peaks over the run
  int64_t records_lost = 0;  ///< steps missing in metrics.jsonl, the disk being full
};

std::string to_json(const RunSummary& summary);

class MetricsWriter {
 public:
  /// fresh: an earlier run's metrics.jsonl is kept, as metrics.1.jsonl or the next free number. resumed: it
  /// is continued, after cutting off a last line that a killed run left half written.
  enum class Start { fresh, resumed };

  /// `folder` exists (prepare_output_folder). Throws IoError if the file cannot be opened.
  explicit MetricsWriter(std::filesystem::path folder, Start start = Start::fresh);

  /// Adds a line and hands it to the system; a failure is a warning (append_file.h).
  void write(const StepRecord& record);

  /// Completes `summary` with the second part and replaces summary.json. A failure is a warning.
  RunSummary finish(RunSummary summary) const;

 private:
  std::filesystem::path folder_;
  AppendFile file_;
  RunSummary totals_;
  int64_t timed_steps_ = 0;                            // those with a rate, the first left out
  double seconds_per_token_ = 0, matmul_percent_ = 0;  // sums over them
};

/// All records of a metrics.jsonl, the last one of each step (a resumed run repeats what it lost), by step.
/// Lines that are no records are skipped. Throws IoError if there is no such file.
std::vector<StepRecord> read_metrics(const std::filesystem::path& file);

}  // namespace aliquot
