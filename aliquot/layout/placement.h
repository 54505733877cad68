// A stage is a row in a table: what of the model states is replicated, what is sharded. Every other part asks
// it.
//
//   | stage | params     | grads                        | optimizer  |
//   |-------|------------|------------------------------|------------|
//   | 0     | replicated | replicated                   | replicated |
//   | 1     | replicated | replicated till the boundary | sharded    |
//   | 2     | replicated | sharded                      | sharded    |
//   | 3     | sharded    | sharded                      | sharded    |
#pragma once

#include <cstdint>

#include "aliquot/config/config.h"
#include "aliquot/layout/layout.h"

namespace aliquot {

enum class Spread { replicated, sharded };

struct Placement {
  Spread params = Spread::replicated;
  Spread grads = Spread::replicated;
  Spread optimizer = Spread::replicated;

  /// The row of a stage (0–3); throws UsageError for another one.
  static Placement of_stage(int stage);
};

/// Bytes of model states that one rank holds, by kind, padding included; what the meter shows after the first
/// step.
struct StateBytes {
  int64_t params = 0, grads = 0, master = 0, moments = 0;
  int64_t total() const { return params + grads + master + moments; }
};

/// `moments` is how many fp32 states the optimizer keeps per parameter (2 for Adam). fp32 parameters are
/// their own master.
StateBytes state_bytes(const Layout& layout, const Placement& placement, DType grad_accum_dtype, int moments);

}  // namespace aliquot
