#include "aliquot/comm/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

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

/// The ranks whose keys are not there within the store's timeout. Asks again and again: a wait of the store's
/// own that runs out says so on standard error, at length.
std::vector<int> wait_for_keys(const Store& store, int world, std::string_view name) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + store->getTimeout();
  std::vector<int> missing(static_cast<size_t>(world));
  std::iota(missing.begin(), missing.end(), 0);
  for (auto pause = 200us;; pause = std::min<std::chrono::microseconds>(pause * 2, 20ms)) {
    std::erase_if(missing, [&](int r) { return store->check({key(name, r)}); });
    if (missing.empty() || std::chrono::steady_clock::now() >= deadline) return missing;
    std::this_thread::sleep_for(pause);
  }
}

std::vector<std::string> read_all(const Store& store, int world, std::string_view name) {
  std::vector<std::string> all(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) all[static_cast<size_t>(r)] = to_text(store->get(key(name, r)));
  return all;
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
  try {
    store->set(key(name, rank), to_bytes(own));
    std::vector<int> missing = wait_for_keys(store, world, name);
    if (missing.empty()) return read_all(store, world, name);
    throw CommError(fmt::format("rank {}: after {:.1f} s these ranks of {} have not joined: {}", rank,
                                std::chrono::duration<double>(store->getTimeout()).count(), world,
                                fmt::join(missing, ", ")));
  } catch (const c10::Error& e) {
    throw CommError(fmt::format("rank {}: the rendezvous ended while ranks joined; did rank 0 fail? ({})",
                                rank, e.what_without_backtrace()));
  }
}

std::vector<uint8_t> to_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}
std::string to_text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace aliquot
