#include "aliquot/observe/monitor.h"

#include <algorithm>

#include "aliquot/observe/append_file.h"
#include "aliquot/observe/csv_monitor.h"
#include "aliquot/observe/tensorboard.h"

namespace aliquot {

namespace {

template <typename Writer>
void add_if_enabled(const MonitorConfig& config, std::vector<std::unique_ptr<Monitor>>& monitors) {
  if (!config.enabled) return;
  const std::filesystem::path folder = std::filesystem::path(config.output_path) / config.job_name;
  prepare_output_folder(folder);
  monitors.push_back(std::make_unique<Writer>(folder));
}

double ms_of(const StepRecord& record, const char* phase) {
  const auto found = record.ms.find(phase);
  return found == record.ms.end() ? 0 : found->second;
}

}  // namespace

std::vector<MonitorEvent> monitor_events(const StepRecord& record, const Config& config) {
  std::vector<MonitorEvent> events;
  const auto add = [&](const char* name, double value) {
    events.push_back({std::string("Train/Samples/") + name, value, record.samples});
  };
  add("train_loss", record.loss);
  add("lr", record.lr);
  if (config.fp16.enabled) add("loss_scale", record.loss_scale);
  if (config.wall_clock_breakdown) {
    const double backward = ms_of(record, "backward"), reduce = ms_of(record, "reduce");
    const bool inside = config.zero.stage >= 2 && !config.zero.overlap_comm;
    add("elapsed_time_ms_forward", ms_of(record, "forward"));
    add("elapsed_time_ms_backward", backward);
    add("elapsed_time_ms_backward_inner", inside ? std::max(backward - reduce, 0.0) : backward);
    add("elapsed_time_ms_backward_allreduce", reduce);
    add("elapsed_time_ms_step", ms_of(record, "update") + ms_of(record, "publish"));
  }
  return events;
}

std::vector<std::unique_ptr<Monitor>> make_monitors(const Config& config) {
  std::vector<std::unique_ptr<Monitor>> monitors;
  add_if_enabled<TensorBoardMonitor>(config.tensorboard, monitors);
  add_if_enabled<CsvMonitor>(config.csv_monitor, monitors);
  return monitors;
}

}  // namespace aliquot
