// Replicas that should be equal are compared now and then: each rank updates or receives its own copy, and a
// fault of one machine would otherwise show as nothing but a worse loss.
#pragma once

#include <span>
#include <string>

#include "aliquot/comm/comm.h"
#include "aliquot/engine/updater.h"
#include "aliquot/layout/layout.h"
#include "aliquot/pager/unit_store.h"

namespace aliquot {

/// Collective: compares a 64-bit sum of every replicated unit, masters where every rank updates its own
/// (stage 0), parameters where they are published (stages 1, 2). Nothing is replicated at stage 3. Throws
/// CommError naming the unit's first parameter and the ranks that differ from rank 0.
void check_replicas(const Layout& layout, UnitStore& store, Updater& updater,
                    std::span<const std::string> names, const Comm& comm);

}  // namespace aliquot
