#include "aliquot/comm/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>

#include "aliquot/comm/listener_probe.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

std::string key(std::string_view name, int rank) {
  return fmt::format("{}/{}", name, rank);
}

std::string advice(const Rendezvous& r, bool host, std::string_view error) {
  if (!host)
    return "did rank 0 start, and do MASTER_ADDR and MASTER_PORT name its host and a port that is open "
           "there?";
  if (error.find("EADDRINUSE") == std::string_view::npos) return std::string(error);
  return fmt::format("port {} is in use, perhaps by another job; set MASTER_PORT to a free one",
                     r.master_port);
}

}  // namespace

Store open_store(const Rendezvous& r, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(r.master_port);
  options.isServer = r.rank == 0 && !r.agent_store;
  options.numWorkers = static_cast<size_t>(r.world);
  options.waitWorkers = false;
  options.timeout = timeout;
  std::string error;
  try {
    // TCPStore's own retries are half a second apart.
    if (!options.isServer) wait_for_listener(r.master_addr, r.master_port, timeout);
    auto store = c10::make_intrusive<c10d::TCPStore>(r.master_addr, options);
    // The launcher's store outlives restarts of its ranks; what an earlier life wrote there must not be read.
    const char* restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("aliquot/{}", restart != nullptr ? restart : "0"), store);
  } catch (const std::exception& e) {
    error = e.what();
  }
  throw CommError(fmt::format("rank {} (by {}): cannot {} the rendezvous at {}:{}: {}", r.rank, r.source,
                              options.isServer ? "open" : "reach", r.master_addr, r.master_port,
                              advice(r, options.isServer, error)));
}

std::vector<std::string> collect(const Store& store, int rank, int world, std::string_view name,
                                 std::string_view own) {
  std::vector<std::string> all;
  try {
    store->set(key(name, rank), to_bytes(own));
    for (int r = 0; r < world; ++r) all.push_back(to_text(store->get(key(name, r))));
    return all;
  } catch (const std::exception& e) {
    std::vector<int> missing;
    try {
      for (int r = 0; r < world; ++r) {
        if (!store->check({key(name, r)})) missing.push_back(r);
      }
    } catch (const std::exception&) {
      throw CommError(fmt::format("rank {}: the rendezvous ended while ranks joined; did rank 0 fail? ({})",
                                  rank, e.what()));
    }
    throw CommError(fmt::format("rank {}: after {:.1f} s these ranks of {} have not joined: {}", rank,
                                std::chrono::duration<double>(store->getTimeout()).count(), world,
                                fmt::join(missing, ", ")));
  }
}

std::vector<uint8_t> to_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}
std::string to_text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace aliquot
