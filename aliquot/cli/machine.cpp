#include "aliquot/cli/machine.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "aliquot/cli/control_group.h"
#include "aliquot/cli/cores.h"
#include "aliquot/cli/rank_process.h"

namespace aliquot {
namespace {

// x86's, then Arm's.
constexpr std::string_view kFeatures[] = {"avx2",        "fma",         "f16c",     "avx512f",  "avx512bw",
                                          "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile", "avx512_vnni",
                                          "asimd",       "asimdhp",     "bf16",     "sve",      "sve2"};

void read_cpu(Machine& machine) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name") && machine.cpu.empty()) machine.cpu = value;
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(value);
    for (std::string word; words >> word;) {
      if (std::ranges::find(kFeatures, word) != std::end(kFeatures)) machine.cpu_features.push_back(word);
    }
    return;
  }
}

std::optional<int64_t> number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

void read_memory(Machine& machine) {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    words >> name >> value;
    if (name == "MemTotal:") machine.memory_bytes = value * 1024;
    if (name == "MemAvailable:") machine.memory_available = value * 1024;
    if (name == "HugePages_Free:") machine.reserved_huge_pages = value;
  }
  for (const std::filesystem::path& group : control_groups("memory")) {
    for (const auto& [limit, usage] : {std::pair{"memory.max", "memory.current"},
                                       std::pair{"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
      const auto most = number(first_line(group / limit));
      if (!most || *most >= machine.memory_bytes) continue;
      machine.memory_bytes = *most;
      const int64_t free = *most - number(first_line(group / usage)).value_or(0);
      machine.memory_available = std::min(machine.memory_available, free);
    }
  }
}

/// "madvise" of "always [madvise] never".
std::string chosen(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return close == std::string::npos || close < open ? "unknown" : line.substr(open + 1, close - open - 1);
}

std::string error_unless(const Fd& fd) {
  return fd ? "" : std::strerror(errno);
}

void probe(Machine& machine) {
  io_uring_params parameters{};
  machine.io_uring = error_unless(Fd(static_cast<int>(syscall(SYS_io_uring_setup, 2, &parameters))));
  machine.memfd = error_unless(Fd(memfd_create("aliquot", MFD_CLOEXEC)));
  machine.pidfd = error_unless(open_pidfd(getpid()));
}

std::vector<std::string> accelerator_files() {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    const bool numbered_nvidia = name.starts_with("nvidia") && name.size() > 6 && std::isdigit(name[6]) != 0;
    if (numbered_nvidia || name == "kfd" || name == "accel") out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  read_cpu(machine);
  machine.cores = usable_cores();
  machine.online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  read_memory(machine);
  utsname system{};
  if (uname(&system) == 0) machine.kernel = system.release;
  const std::filesystem::path pages = "/sys/kernel/mm/transparent_hugepage";
  machine.huge_pages = chosen(first_line(pages / "enabled"));
  machine.shared_huge_pages = chosen(first_line(pages / "shmem_enabled"));
  rlimit lock{};
  getrlimit(RLIMIT_MEMLOCK, &lock);
  if (lock.rlim_cur != RLIM_INFINITY) machine.memlock_bytes = static_cast<int64_t>(lock.rlim_cur);
  probe(machine);
  machine.accelerators = accelerator_files();
  return machine;
}

}  // namespace aliquot
