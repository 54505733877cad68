// How the ranks find each other: a TCPStore for the introductions, then shared memory or Gloo.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <fstream>

#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/gloo.h"
#include "aliquot/comm/shm_group.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

// Long enough for a slow file system to load LibTorch, short enough for a person to wait.
constexpr std::chrono::seconds kJoinTimeout(120);

std::vector<uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

// Equal exactly for processes that may share memory and see each other's pids.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat pids {};
  if (stat("/proc/self/ns/pid", &pids) != 0) return fmt::format("{}-{}", boot, getpid());
  return fmt::format("{}/{}/{}", boot, pids.st_ino, geteuid());
}

Store open_store(const Rendezvous& r) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(r.master_port);
  options.isServer = r.rank == 0 && !r.agent_store;
  options.numWorkers = static_cast<size_t>(r.world);
  options.waitWorkers = false;
  options.timeout = kJoinTimeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(r.master_addr, options);
    // The launcher's store outlives restarts of its ranks; what an earlier life wrote there must not be read.
    const char* restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("aliquot/{}", restart != nullptr ? restart : "0"), store);
  } catch (const std::exception& e) {
    throw CommError(fmt::format("rank {} ({}): cannot {} the rendezvous at {}:{}: {}", r.rank, r.source,
                                options.isServer ? "open" : "reach", r.master_addr, r.master_port, e.what()));
  }
}

std::string key(std::string_view name, int rank) {
  return fmt::format("{}/{}", name, rank);
}

// What every rank wrote under `name`.
std::vector<std::string> collect(const Store& store, const Rendezvous& r, std::string_view name,
                                 const std::string& own) {
  store->set(key(name, r.rank), bytes_of(own));
  std::vector<std::string> all;
  for (int rank = 0; rank < r.world; ++rank) {
    try {
      const std::vector<uint8_t> value = store->get(key(name, rank));
      all.emplace_back(value.begin(), value.end());
    } catch (const std::exception&) {
      std::vector<int> missing;
      for (int other = rank; other < r.world; ++other) {
        if (!store->check({key(name, other)})) missing.push_back(other);
      }
      throw CommError(fmt::format("rank {}: after {} s these ranks of {} have not joined: {}", r.rank,
                                  kJoinTimeout.count(), r.world, fmt::join(missing, ", ")));
    }
  }
  return all;
}

std::shared_ptr<CommImpl> connect_shm(const Store& store, const Rendezvous& r, const CommOptions& options) {
  const size_t bytes = shm::control_bytes(r.world);
  std::shared_ptr<SharedSegment> control;
  if (r.rank == 0) {
    const shm::Fd memory = shm::create_memory(bytes);
    const shm::Listener listener = shm::listen_for_peers(r.world);
    store->set("control", bytes_of(listener.name));
    shm::hand_out(listener, memory.get(), r.world - 1, kJoinTimeout);
    control = shm::map_segment(memory, bytes);
  } else {
    const std::vector<uint8_t> name = store->get("control");
    control = shm::map_segment(shm::receive_from({name.begin(), name.end()}, kJoinTimeout), bytes);
  }
  auto comm =
      make_shm_comm(std::make_unique<shm::Group>(r.rank, r.world, std::move(control), options.timeout));
  // The store may go once everybody has what it came for: no thread of it lives on to the end of the process.
  comm->barrier("join");
  return comm;
}

}  // namespace

Comm Comm::connect(const Rendezvous& r, const CommOptions& options) {
  if (options.backend != "auto" && options.backend != "shm" && options.backend != "gloo") {
    throw ConfigError(fmt::format("backend \"{}\" is unknown; expected auto, shm or gloo", options.backend));
  }
  if (r.world == 1) return Comm();
  const Store store = open_store(r);
  const std::vector<std::string> hosts = collect(store, r, "host", host_identity());
  const bool one_host = std::count(hosts.begin(), hosts.end(), hosts[0]) == r.world;
  if (options.backend == "shm" && !one_host) {
    throw ConfigError("backend shm needs all ranks on one host, as one user; use --backend gloo");
  }
  if (options.backend != "gloo" && one_host) return Comm(connect_shm(store, r, options));
  return Comm(connect_gloo(store, r, options));
}

}  // namespace aliquot
