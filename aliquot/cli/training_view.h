// What a person sees of a run, on rank 0: the summary at the start, the progress line, the files in the
// output folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aliquot/cli/training_run.h"
#include "aliquot/observe/metrics.h"
#include "aliquot/observe/monitor.h"
#include "aliquot/observe/progress.h"

namespace aliquot {

class TrainingView {
 public:
  /// Prints the start-up summary (at most 40 lines) and opens the output folder. Throws IoError if it cannot
  /// be written.
  explicit TrainingView(const TrainingRun& run);

  struct StepFacts {
    double forward_ms = 0, total_ms = 0;
    double limit_flops_per_s = 0;  ///< of all ranks together
    std::optional<double> eval_loss;
  };
  void step(const Engine& engine, const StepFacts& facts);

  void end_of_training() { progress_.finish(); }
  /// summary.json, report.html, and the closing lines.
  void finish(const std::string& status, const std::string& error, double seconds);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  StepRecord record_of(const Engine& engine, const StepFacts& facts);
  void print_summary() const;

  const TrainingRun& run_;
  std::filesystem::path folder_;
  MetricsWriter metrics_;
  std::vector<std::unique_ptr<Monitor>> monitors_;
  Progress progress_;
  double flops_per_token_;
  int64_t tokens_ = 0;
};

}  // namespace aliquot
