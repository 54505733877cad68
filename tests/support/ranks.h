// Ranks as threads of one process, for tests that need a process group.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "aliquot/comm/comm.h"

namespace aliquot::test {

/// Runs `body(comm)` on `world` ranks and returns when all have ended; rethrows the first failure. A rank
/// that fails aborts the others, so that a failing test does not hang.
inline void run_ranks(int world, const std::function<void(const Comm&)>& body) {
  const std::vector<Comm> comms = world == 1 ? std::vector<Comm>(1) : Comm::threads(world);
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (const Comm& comm : comms) {
    threads.emplace_back([&, comm] {
      try {
        body(comm);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        comm.abort(e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace aliquot::test
