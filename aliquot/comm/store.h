// The store through which ranks find each other: c10d's TCPStore, and what they write there first.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/comm/rendezvous.h"

namespace aliquot {

using Store = c10::intrusive_ptr<c10d::Store>;

/// Rank 0 hosts the store unless the launcher does. Throws CommError that says which address could not be
/// opened or reached.
Store open_store(const Rendezvous& rendezvous, std::chrono::milliseconds timeout);

/// Collective over the store: what every rank said under `name`. Throws CommError that names the ranks that
/// did not come.
std::vector<std::string> collect(const Store& store, int rank, int world, std::string_view name,
                                 std::string_view own);

std::vector<uint8_t> to_bytes(std::string_view text);
std::string to_text(const std::vector<uint8_t>& bytes);

}  // namespace aliquot
