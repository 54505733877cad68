// TensorBoard's event file by hand: three protobuf messages and a checksum are all that scalars need.
//
// A record is u64 length, u32 masked crc32c of those 8 bytes, the data, u32 masked crc32c of the data; all
// little-endian. The data is an Event: 1 double wall_time, 2 int64 step, 3 string file_version, which is
// "brain.Event:2" in the first record, 5 Summary; a Summary: 1 repeated Value; a Value: 1 string tag, 2 float
// simple_value.
#pragma once

#include <filesystem>
#include <vector>

#include "aliquot/observe/append_file.h"
#include "aliquot/observe/monitor.h"

namespace aliquot {

class TensorBoardMonitor final : public Monitor {
 public:
  /// Begins a new file events.out.tfevents.<time>.<host>.<pid>.<n> in `folder`, which exists; TensorBoard
  /// shows all files of a folder as one run.
  explicit TensorBoardMonitor(const std::filesystem::path& folder);

  /// One record per number of samples, flushed.
  void write(const std::vector<MonitorEvent>& events) override;

 private:
  AppendFile file_;
};

}  // namespace aliquot
