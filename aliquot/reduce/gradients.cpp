#include "aliquot/reduce/gradients.h"

#include <utility>

namespace aliquot {

Gradients::Gradients(std::shared_ptr<const Layout> layout, Spread spread, DType dtype, int rank,
                     const std::shared_ptr<Meter>& meter)
    : layout_(std::move(layout)), spread_(spread), dtype_(dtype), rank_(rank) {
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    const Unit& unit = layout_->unit(u);
    const int64_t numel = spread_ == Spread::sharded ? layout_->slice_numel(u) : unit.padded_numel;
    units_.emplace_back(meter, Kind::grads, unit.trainable ? numel * size_of(dtype_) : 0);
  }
}

}  // namespace aliquot
