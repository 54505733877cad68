// Whether the other ranks of this host still run, by their process ids. Torch-free.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "aliquot/comm/shm_segment.h"

namespace aliquot {

/// Rank r's process is `pids[r]`; 0 for a rank of another host, which is not watched, nor is this process
/// itself. Safe to use from several threads.
class Peers {
 public:
  Peers() = default;
  /// Without `pidfds` as where the kernel has none.
  explicit Peers(const std::vector<pid_t>& pids, bool pidfds = true);

  /// Whether the process of `rank` is known to have ended.
  bool ended(int rank) const;
  /// "rank 1 (pid 1234)", or "rank 1" for ranks that are not watched.
  std::string name(int rank) const;

 private:
  struct Process {
    pid_t pid = 0;
    shm::Fd pidfd;  // empty where the kernel has none (before Linux 5.3): then the number is asked after
    bool gone = false;
  };
  std::vector<Process> processes_;
};

}  // namespace aliquot
