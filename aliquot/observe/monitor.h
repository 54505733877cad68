// The `tensorboard` and `csv_monitor` blocks of ds_config.json: the events DeepSpeed writes, under its names.
//
//   Train/Samples/train_loss                                  always
//   Train/Samples/lr                                          always
//   Train/Samples/loss_scale                                  with fp16
//   Train/Samples/elapsed_time_ms_{forward, backward, backward_inner, backward_allreduce, step}
//                                                             with wall_clock_breakdown
//
// once per optimizer boundary, over the number of samples seen. Files lie in <output_path>/<job_name>, as
// DeepSpeed's do: an output_path of "" is the working directory. A restarted run continues there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aliquot/config/config.h"
#include "aliquot/observe/record.h"

namespace aliquot {

struct MonitorEvent {
  std::string tag;
  double value;
  int64_t samples;
};

class Monitor {
 public:
  virtual ~Monitor() = default;
  /// Events that cannot be written are lost with one warning (append_file.h).
  virtual void write(const std::vector<MonitorEvent>& events) = 0;
};

/// The events of one step. backward_inner is backward without the reduction, where that runs inside it: at
/// stages 2 and 3 without overlap_comm.
std::vector<MonitorEvent> monitor_events(const StepRecord& record, const Config& config);

/// The monitors that the file enables; for rank 0. Throws IoError if their folder cannot be written.
std::vector<std::unique_ptr<Monitor>> make_monitors(const Config& config);

}  // namespace aliquot
