// The gradient accumulators of one rank: whole units where gradients are replicated, slices where they are
// sharded.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "aliquot/layout/layout.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/buffer.h"

namespace aliquot {

/// Holds plain sums in `dtype` ([Note: arithmetic] A1, A3). What a parameter's memory holds means something
/// only once the window has a contribution to it; allocated with the engine, so the first step needs no more
/// than the later ones.
class Gradients {
 public:
  Gradients(std::shared_ptr<const Layout> layout, Spread spread, DType dtype, int rank,
            const std::shared_ptr<Meter>& meter);

  DType dtype() const { return dtype_; }
  Spread spread() const { return spread_; }

  /// Element `unit_offset` of unit `u`; it must lie in this rank's slice where gradients are sharded.
  std::byte* at(int u, int64_t unit_offset) const {
    const int64_t begin = spread_ == Spread::sharded ? layout_->slice(u, rank_).begin : 0;
    return units_[static_cast<size_t>(u)].data() + (unit_offset - begin) * size_of(dtype_);
  }

 private:
  std::shared_ptr<const Layout> layout_;
  Spread spread_;
  DType dtype_;
  int rank_;
  std::vector<Buffer> units_;  // empty for frozen units
};

}  // namespace aliquot
