// What this machine gives a run, asked of the kernel: for `aliquot env`. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aliquot {

struct Machine {
  std::string cpu;                        ///< "AMD EPYC 7713"
  std::vector<std::string> cpu_features;  ///< of those that kernels here or LibTorch's use
  int cores = 1;                          ///< usable by this process
  int online_cores = 1;                   ///< of the machine
  int64_t memory_bytes = 0;               ///< of the machine, or the control group's limit if that is lower
  int64_t memory_available = 0;
  std::string kernel;                     ///< "6.1.0-18-amd64"
  std::string huge_pages;                 ///< transparent ones: "always", "madvise", "never"
  std::string shared_huge_pages;          ///< the same for shared memory
  int64_t reserved_huge_pages = 0;        ///< hugetlb pages that are free
  std::optional<int64_t> memlock_bytes;   ///< of memory that may be locked; nothing: no limit
  std::string io_uring;                   ///< empty if it works, else why not
  std::string memfd;                      ///< the same for anonymous shared memory
  std::string pidfd;                      ///< the same for watching processes
  std::vector<std::string> accelerators;  ///< device files
};

Machine this_machine();

}  // namespace aliquot
