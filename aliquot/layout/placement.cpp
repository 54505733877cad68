#include "aliquot/layout/placement.h"

#include "aliquot/error.h"

namespace aliquot {

Placement Placement::of_stage(int stage) {
  using enum Spread;
  switch (stage) {
    case 0:
      return {replicated, replicated, replicated};
    case 1:
      return {replicated, replicated, sharded};
    case 2:
      return {replicated, sharded, sharded};
    case 3:
      return {sharded, sharded, sharded};
    default:
      throw UsageError("zero_optimization.stage must be 0, 1, 2 or 3, got " + std::to_string(stage));
  }
}

StateBytes state_bytes(const Layout& layout, const Placement& placement, DType grad_accum_dtype,
                       int moments) {
  StateBytes bytes;
  for (size_t u = 0; u < layout.units().size(); ++u) {
    const Unit& unit = layout.units()[u];
    const auto held = [&](Spread spread) {
      return spread == Spread::sharded ? unit.padded_numel / layout.world() : unit.padded_numel;
    };
    bytes.params += held(placement.params) * size_of(unit.dtype);
    if (!unit.trainable) continue;
    bytes.grads += held(placement.grads) * size_of(grad_accum_dtype);
    if (unit.dtype != DType::fp32) bytes.master += held(placement.optimizer) * 4;
    bytes.moments += held(placement.optimizer) * 4 * moments;
  }
  return bytes;
}

}  // namespace aliquot
