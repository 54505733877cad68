// Ranks of one host from a store to shared memory.
#pragma once

#include <memory>

#include "aliquot/comm/shm_group.h"
#include "aliquot/comm/store.h"

namespace aliquot {

/// Which ranks share this process's host, user and namespaces.
struct Hosts {
  bool one = false;                    ///< all of them
  std::shared_ptr<const Peers> peers;  ///< watches those of this host
  std::string table;                   ///< "node1: rank 0, 1; node2: rank 2", for messages
};
/// Collective over `store`.
Hosts find_hosts(const Store& store, int rank, int world);

struct ShmJoin {
  std::unique_ptr<shm::Group> group;  ///< null if some rank could not
  std::string problem;                ///< then: which, and why
};
/// Collective over `store`, for ranks of one host; the same outcome on all.
ShmJoin join_shm(const Store& store, const shm::Group::Member& member);

}  // namespace aliquot
