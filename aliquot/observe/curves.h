// DIR/report.html: the curves of a run on one page that needs nothing beside itself: loss, throughput, memory
// by kind, time by phase, gradient norm, and the run's key figures above.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "aliquot/observe/metrics.h"
#include "aliquot/observe/record.h"

namespace aliquot {

/// The page as text.
std::string report_page(const RunSummary& summary, const std::vector<StepRecord>& records);

/// Draws `folder`/metrics.jsonl into `folder`/report.html. A failure is a warning.
void write_report(const std::filesystem::path& folder, const RunSummary& summary);

}  // namespace aliquot
