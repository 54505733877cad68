// Gloo through c10d, where its headers fit the torch found; CMake picks gloo.cpp or no_gloo.cpp.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>

#include "aliquot/comm/store.h"

namespace aliquot {

bool has_gloo();

/// Collective. Listens on the interfaces that GLOO_SOCKET_IFNAME names (comma-separated), else on the
/// loopback interface if all ranks are on one host, else where the host's name leads. Throws ConfigError
/// where Gloo is not built in, CommError where ranks do not reach each other.
c10::intrusive_ptr<c10d::Backend> open_gloo(const Store& store, int rank, int world,
                                            std::chrono::milliseconds timeout, bool one_host);

}  // namespace aliquot
