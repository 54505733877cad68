// One CSV file per metric, as DeepSpeed's csv_monitor writes them: <tag with / and spaces as _>.csv, a header
// "step,<last part of the tag>", then "samples,value" lines; lines end as Python's csv module ends them, in
// CR LF. DeepSpeed repeats the header at every restart; here it is written once.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "aliquot/observe/append_file.h"
#include "aliquot/observe/monitor.h"

namespace aliquot {

class CsvMonitor final : public Monitor {
 public:
  /// `folder` exists.
  explicit CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void write(const std::vector<MonitorEvent>& events) override;

 private:
  AppendFile* file_of(const std::string& tag);

  std::filesystem::path folder_;
  std::map<std::string, AppendFile> files_;  // by tag
  bool warned_ = false;
};

}  // namespace aliquot
