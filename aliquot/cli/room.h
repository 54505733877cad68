// Whether a model's states fit this host at all, before anything is started.
#pragma once

#include <cstdint>
#include <string>

#include "aliquot/config/config.h"

namespace aliquot {

/// Bytes that all of `ranks` ranks of one host hold together in memory, by kind: parameters, accumulated
/// gradients, fp32 masters, moments. What lies on NVMe does not count; activations and buckets come on top.
struct HostStates {
  double params = 0, grads = 0, master = 0, moments = 0;
  double total() const { return params + grads + master + moments; }
};
HostStates host_states(const Config& config, int64_t parameters, int ranks);

/// Empty if the states are less than `available` bytes. Else what is needed and held by what, and which
/// settings that are not yet in use would need less, in the order in which they should be tried.
std::string room_problem(const std::string& model, const Config& config, int64_t parameters, int ranks,
                         int64_t available);

}  // namespace aliquot
