#include "aliquot/observe/csv_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {

void CsvMonitor::write(const std::vector<MonitorEvent>& events) {
  for (const MonitorEvent& event : events)
    if (AppendFile* file = file_of(event.tag))
      file->append(fmt::format("{},{}\r\n", event.samples, event.value));
}

/// Null, after one warning, when the file cannot be opened.
AppendFile* CsvMonitor::file_of(const std::string& tag) try {
  if (const auto found = files_.find(tag); found != files_.end()) return &found->second;
  std::string name = tag;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  AppendFile file(folder_ / (name + ".csv"));
  if (file.size() == 0 && !file.append(fmt::format("step,{}\r\n", tag.substr(tag.rfind('/') + 1))))
    return nullptr;
  return &files_.emplace(tag, std::move(file)).first->second;
} catch (const IoError& error) {
  if (!std::exchange(warned_, true)) log::warn("csv_monitor: {}", error.what());
  return nullptr;
}

}  // namespace aliquot
