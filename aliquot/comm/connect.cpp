// How the ranks find each other: a TCPStore for the introductions, then shared memory or Gloo.
#include <fmt/format.h>

#include "aliquot/comm/backend_comm.h"
#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/connect_shm.h"
#include "aliquot/comm/gloo.h"
#include "aliquot/comm/store.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {

Comm Comm::connect(const Rendezvous& r, const CommOptions& options) {
  if (options.backend != "auto" && options.backend != "shm" && options.backend != "gloo") {
    throw ConfigError(fmt::format("backend \"{}\" is unknown; expected auto, shm or gloo", options.backend));
  }
  if (r.world == 1) return Comm();
  const Store store = open_store(r, options.join_timeout);
  const Hosts hosts = find_hosts(store, r.rank, r.world);
  if (options.backend == "shm" && !hosts.one) {
    throw ConfigError(fmt::format(
        "backend shm needs all ranks on one host, as one user and in one container ({}); use gloo",
        hosts.table));
  }
  if (options.backend != "gloo" && hosts.one) {
    ShmJoin join = join_shm(store, {r.rank, r.world, options.timeout, hosts.peers});
    if (join.group) return Comm(make_shm_comm(std::move(join.group)));
    if (options.backend == "shm" || !has_gloo()) throw CommError(join.problem);
    if (r.rank == 0)
      log::warn("the ranks cannot share memory, so they talk through Gloo, which is slower: {}",
                join.problem);
  }
  const auto open = [=, one_host = hosts.one](const Store& meeting_point) {
    return open_gloo(meeting_point, r.rank, r.world, options.timeout, one_host);
  };
  return Comm(make_backend_comm({"gloo", r.rank, r.world, options.timeout, hosts.peers, open}, store));
}

}  // namespace aliquot
