#include "aliquot/cli/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <thread>

#include "aliquot/cli/control_group.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

int affinity_cores() {
  cpu_set_t set;
  // Fails on machines of more than 1024 cores, where the quota below and all cores are the better answer.
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&set);
}

/// The smallest quota from this process's control group up to the root.
std::optional<double> quota_cores() {
  std::optional<double> least;
  for (const std::filesystem::path& group : control_groups("cpu")) {
    const std::string version_1 =
        first_line(group / "cpu.cfs_quota_us") + " " + first_line(group / "cpu.cfs_period_us");
    for (const std::string& line : {first_line(group / "cpu.max"), version_1}) {
      if (const auto cores = parse_cpu_max(line)) least = std::min(least.value_or(*cores), *cores);
    }
  }
  return least;
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

std::string text_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = whole_number(line.substr(0, space)), period = whole_number(line.substr(space + 1));
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / *period;
}

int usable_cores() {
  const int cores = affinity_cores();
  const auto quota = quota_cores();
  return std::max(1, quota ? std::min(cores, static_cast<int>(std::ceil(*quota))) : cores);
}

ThreadChoice choose_threads(int asked, const Environment& environment, int cores, int local_ranks) {
  if (asked > 0) return {asked, "--threads"};
  if (const std::string set = text_of(environment, "OMP_NUM_THREADS"); !set.empty()) {
    const auto threads = whole_number(std::string_view(set).substr(0, set.find(',')));
    if (!threads)
      throw ConfigError(fmt::format("OMP_NUM_THREADS={}: expected a whole number of at least 1", set));
    return {*threads, "OMP_NUM_THREADS"};
  }
  // srun binds each task to its own CPUs, so the mask is already this rank's part.
  if (const auto cpus = whole_number(text_of(environment, "SLURM_CPUS_PER_TASK"))) {
    return {std::min(*cpus, cores), "SLURM_CPUS_PER_TASK"};
  }
  return {std::max(1, cores / local_ranks), fmt::format("{} cores / {} ranks", cores, local_ranks)};
}

}  // namespace aliquot
