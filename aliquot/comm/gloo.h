// Gloo through c10d, where its headers fit the torch found; CMake picks gloo.cpp or no_gloo.cpp.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "aliquot/comm/comm_impl.h"

namespace aliquot {

bool has_gloo();
/// Collective. Throws ConfigError where Gloo is not built in.
std::shared_ptr<CommImpl> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                       const Rendezvous& rendezvous, const CommOptions& options);

}  // namespace aliquot
