// How many cores this process may use, and how many of them a rank takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "aliquot/comm/rendezvous.h"

namespace aliquot {

/// Cores of this process: its affinity mask, and no more than the quotas of its control groups give it.
int usable_cores();

/// Cores that a line of cpu.max allows: "200000 100000" is 2. Nothing for "max 100000" or what is no such
/// line.
std::optional<double> parse_cpu_max(std::string_view line);

struct ThreadChoice {
  int threads = 1;
  std::string because;  ///< "--threads", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "8 cores / 2 ranks"
};

/// Threads of each of `local_ranks` ranks: `asked` unless 0, else OMP_NUM_THREADS, else srun's CPUs of a
/// task, else an equal part of `cores`, at least 1. Throws ConfigError if OMP_NUM_THREADS is not a number; of
/// a list ("4,2") the first counts.
ThreadChoice choose_threads(int asked, const Environment& environment, int cores, int local_ranks);

}  // namespace aliquot
