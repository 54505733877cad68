#include "aliquot/cli/control_group.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace aliquot {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::filesystem::path> control_groups(std::string_view controller) {
  const std::filesystem::path mount = "/sys/fs/cgroup";
  std::vector<std::filesystem::path> out;
  std::ifstream groups("/proc/self/cgroup");
  // Lines are ID:CONTROLLERS:PATH; version 2 has no controllers there and one tree for all.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version_2 = names == ",,";
    if (!version_2 && names.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const std::filesystem::path root = version_2 ? mount : mount / controller;
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (; !group.empty(); group = group.parent_path()) out.push_back(root / group);
    out.push_back(root);
  }
  return out;
}

}  // namespace aliquot
