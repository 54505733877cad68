// A Comm over any c10d::Backend: Gloo today.
//
// c10d's own backends do not compare what the ranks call: one that gathers 8 bytes while its peer gathers 16
// hangs, or crashes. So every operation begins with a gather of what each rank is about to do, which is also
// the barrier.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/peers.h"
#include "aliquot/comm/store.h"

namespace aliquot {

struct BackendMember {
  std::string name;  ///< as Comm::backend() says it
  int rank = 0;
  int world = 1;
  std::chrono::milliseconds timeout;
  std::shared_ptr<const Peers> peers;
  /// A new connection of all ranks, who meet in `store`.
  std::function<c10::intrusive_ptr<c10d::Backend>(const Store& store)> open;
};

/// Collective. `store` is kept: failing ranks leave their words there.
std::shared_ptr<CommImpl> make_backend_comm(BackendMember member, const Store& store);

}  // namespace aliquot
