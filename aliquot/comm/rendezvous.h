// Who this process is among the ranks, as its launcher says it in the environment. No torch, no sockets.
//
// Families, in this order: RANK/WORLD_SIZE/LOCAL_RANK/LOCAL_WORLD_SIZE (our launcher, torchrun),
// OMPI_COMM_WORLD_* (Open MPI's mpirun), PMI_* and MPI_LOCAL* (MPICH's, Intel's), SLURM_* (srun). The first
// that is there decides; one that lacks a variable, or two that contradict each other, are errors that list
// what was found.
#pragma once

#include <map>
#include <string>

namespace aliquot {

struct Rendezvous {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;                    ///< ranks on this host
  std::string master_addr = "127.0.0.1";  ///< where the TCPStore listens
  int master_port = 0;                    ///< 0 only where world is 1 and nobody needs a store
  bool agent_store =
      false;  ///< the store is the launcher's (torchrun): every rank is a client of it, rank 0 too
  std::string source = "none";  ///< for messages: "torchrun", "RANK", "mpirun", "PMI", "srun", "none"

  bool operator==(const Rendezvous&) const = default;
};

using Environment = std::map<std::string, std::string>;

/// This process's environment variables.
Environment process_environment();

/// Reads `environment`; without any family, the single rank of a world of one. Throws ConfigError naming the
/// variables, their values and what was expected.
Rendezvous rendezvous_from(const Environment& environment);

/// Whether another launcher has already made this process a rank (any variable of a family is there).
bool is_launched(const Environment& environment);

/// torchrun sets OMP_NUM_THREADS=1 where the user set nothing, which leaves cores idle: a sentence that says
/// so and what to do, or "" if there is nothing to say. `cores` are those this process may use.
std::string thread_advice(const Environment& environment, const Rendezvous& rendezvous, int cores);

}  // namespace aliquot
