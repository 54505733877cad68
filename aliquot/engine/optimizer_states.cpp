#include "aliquot/engine/optimizer_states.h"

#include <cstring>
#include <utility>

#include "aliquot/optim/kernels.h"

namespace aliquot {

OptimizerStates::OptimizerStates(std::shared_ptr<const Layout> layout, Placement placement, int moments,
                                 UnitStore& store, int rank, const std::shared_ptr<Meter>& meter)
    : layout_(std::move(layout)), placement_(placement), store_(store), rank_(rank) {
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    const Unit& unit = layout_->unit(u);
    auto& columns = units_.emplace_back();
    if (!unit.trainable) continue;
    const int64_t bytes = held(u).numel() * 4;
    for (int m = 0; m < moments; ++m)
      columns[static_cast<size_t>(1 + m)] = Buffer(meter, Kind::moments, bytes);
    if (unit.dtype == DType::fp32) continue;
    columns[0] = Buffer(meter, Kind::master, bytes);
    kernels::widen(param(u), unit.dtype, column(Column::master, u), held(u).numel());
  }
}

Range OptimizerStates::held(int u) const {
  if (placement_.optimizer == Spread::replicated) return {0, layout_->unit(u).padded_numel};
  return layout_->slice(u, rank_);
}

std::byte* OptimizerStates::param(int u) const {
  std::byte* whole = store_.whole(u);
  return whole != nullptr ? whole + held(u).begin * size_of(layout_->unit(u).dtype) : store_.slice(u);
}

float* OptimizerStates::column(Column column, int u) const {
  if (column == Column::master && layout_->unit(u).dtype == DType::fp32)
    return reinterpret_cast<float*>(param(u));
  return units_[static_cast<size_t>(u)][static_cast<size_t>(column)].as<float>();
}

void OptimizerStates::visit(std::span<const int> units, const Visitor& visitor) {
  std::vector<StateWindow> windows;
  for (const int u : units) {
    windows.push_back({.unit = u,
                       .range = held(u),
                       .master = column(Column::master, u),
                       .moment = {column(Column::moment1, u), column(Column::moment2, u)},
                       .param = param(u)});
  }
  visitor(windows);
}

void OptimizerStates::read(Column c, int u, int64_t begin, std::span<float> out) const {
  if (!out.empty()) std::memcpy(out.data(), column(c, u) + begin - held(u).begin, out.size_bytes());
}

void OptimizerStates::write(Column c, int u, int64_t begin, std::span<const float> values) {
  if (!values.empty()) std::memcpy(column(c, u) + begin - held(u).begin, values.data(), values.size_bytes());
}

}  // namespace aliquot
