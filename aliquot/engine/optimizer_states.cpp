#include "aliquot/engine/optimizer_states.h"

#include <algorithm>
#include <utility>

#include "aliquot/optim/kernels.h"

namespace aliquot {
namespace {

constexpr std::array kAllColumns{Column::master, Column::moment1, Column::moment2};
constexpr int64_t kFillNumel = int64_t{1}
                               << 20;  // elements widened at a time while a master is written to NVMe

Kind kind_of(Column column) {
  return column == Column::master ? Kind::master : Kind::moments;
}

}  // namespace

OptimizerStates::OptimizerStates(std::shared_ptr<const Layout> layout, Placement placement,
                                 MomentShape moments, UnitStore& store, StatePlaces places, int rank,
                                 std::shared_ptr<Meter> meter)
    : layout_(std::move(layout)),
      placement_(placement),
      moments_(moments),
      store_(store),
      places_(std::move(places)),
      rank_(rank),
      meter_(std::move(meter)),
      units_(layout_->units().size()) {
  create_cells();
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const Unit& unit = layout_->unit(u);
    if (unit.trainable && unit.dtype != DType::fp32) fill_master(u);
  }
  ring_.emplace(places_.ring, meter_);
}

OptimizerStates::~OptimizerStates() {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    for (const Column c : kAllColumns) {
      if (const auto& file = cell(c, u).file) meter_->remove(kind_of(c), Place::nvme, file->bytes);
    }
  }
}

// Units from the last one on go to NVMe until they are the share asked for.
void OptimizerStates::create_cells() {
  double total = 0;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    if (layout_->unit(u).trainable) total += static_cast<double>(held(u).numel());
  }
  double on_nvme = 0;
  for (int u = static_cast<int>(units_.size()); u-- > 0;) {
    if (!layout_->unit(u).trainable) continue;
    const bool to_file = places_.files != nullptr && on_nvme < places_.share * total;
    if (to_file) on_nvme += static_cast<double>(held(u).numel());
    for (const Column c : kAllColumns) {
      const bool kept = c == Column::master ? !is_param(c, u) : static_cast<int>(c) <= moments_.count;
      if (!kept) continue;
      const int64_t bytes = held(u).numel() * size_of(dtype_of(c));
      if (to_file) {
        cell(c, u).file = places_.files->allocate(bytes);
        meter_->add(kind_of(c), Place::nvme, bytes);
      } else {
        cell(c, u).memory = Buffer(meter_, kind_of(c), bytes);
      }
    }
  }
}

void OptimizerStates::fill_master(int u) {
  const Range range = held(u);
  const DType dtype = layout_->unit(u).dtype;
  if (in_memory(u)) {
    kernels::widen(param(u), dtype, cell(Column::master, u).memory.as<float>(), range.numel());
    return;
  }
  std::vector<float> values;
  std::vector<std::byte> narrow;
  for (int64_t begin = range.begin; begin < range.end; begin += kFillNumel) {
    const int64_t n = std::min(kFillNumel, range.end - begin);
    values.resize(static_cast<size_t>(n));
    narrow.resize(static_cast<size_t>(n * size_of(dtype)));
    if (std::byte* base = param(u)) {
      kernels::widen(base + (begin - range.begin) * size_of(dtype), dtype, values.data(), n);
    } else {
      store_.read_slice(u, (begin - range.begin) * size_of(dtype), narrow);
      kernels::widen(narrow.data(), dtype, values.data(), n);
    }
    write(Column::master, u, begin, values);
  }
}

Range OptimizerStates::held(int u) const {
  if (placement_.optimizer == Spread::replicated) return {0, layout_->unit(u).padded_numel};
  return layout_->slice(u, rank_);
}

bool OptimizerStates::is_param(Column column, int u) const {
  return column == Column::master && layout_->unit(u).dtype == DType::fp32;
}

bool OptimizerStates::in_memory(int u) const {
  return param_file(u) == nullptr &&
         std::ranges::none_of(kAllColumns, [&](Column c) { return cell(c, u).file.has_value(); });
}

/// Null if it is on NVMe.
std::byte* OptimizerStates::param(int u) const {
  std::byte* whole = store_.whole(u);
  return whole != nullptr ? whole + held(u).begin * size_of(layout_->unit(u).dtype) : store_.slice(u);
}

// ---- single elements -----------------------------------------------------------------------------------

void OptimizerStates::read(Column c, int u, int64_t begin, std::span<float> out) const {
  if (out.empty()) return;
  const int64_t offset = (begin - held(u).begin) * size_of(dtype_of(c));
  if (is_param(c, u)) {
    if (std::byte* base = param(u)) {
      std::copy_n(reinterpret_cast<const float*>(base + offset), out.size(), out.data());
    } else {
      store_.read_slice(u, offset, std::as_writable_bytes(out));
    }
    return;
  }
  const auto n = static_cast<int64_t>(out.size());
  if (const auto& file = cell(c, u).file) {
    std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(dtype_of(c))));
    places_.files->read(*file, offset, bytes);
    kernels::widen(bytes.data(), dtype_of(c), out.data(), n);
  } else {
    kernels::widen(cell(c, u).memory.data() + offset, dtype_of(c), out.data(), n);
  }
}

void OptimizerStates::write(Column c, int u, int64_t begin, std::span<const float> values) {
  if (values.empty()) return;
  const int64_t offset = (begin - held(u).begin) * size_of(dtype_of(c));
  if (is_param(c, u)) {
    if (std::byte* base = param(u)) {
      std::copy_n(values.data(), values.size(), reinterpret_cast<float*>(base + offset));
    } else {
      store_.write_slice(u, offset, std::as_bytes(values));
    }
    return;
  }
  const auto n = static_cast<int64_t>(values.size());
  if (const auto& file = cell(c, u).file) {
    std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(dtype_of(c))));
    kernels::narrow(values.data(), bytes.data(), dtype_of(c), n);
    places_.files->write(*file, offset, bytes);
  } else {
    kernels::narrow(values.data(), cell(c, u).memory.data() + offset, dtype_of(c), n);
  }
}

// ---- visits --------------------------------------------------------------------------------------------

StateWindow OptimizerStates::memory_window(const Run& run) const {
  const int64_t begin = run.range.begin - held(run.unit).begin;
  const auto at = [&](std::byte* base, DType dtype) {
    return base == nullptr ? nullptr : base + begin * size_of(dtype);
  };
  const auto column = [&](Column c) { return at(cell(c, run.unit).memory.data(), dtype_of(c)); };
  StateWindow window{.unit = run.unit,
                     .range = run.range,
                     .moment = {column(Column::moment1), column(Column::moment2)},
                     .param = at(param(run.unit), layout_->unit(run.unit).dtype)};
  window.master =
      reinterpret_cast<float*>(is_param(Column::master, run.unit) ? window.param : column(Column::master));
  return window;
}

void OptimizerStates::visit(std::span<const int> units, const Visitor& visitor) {
  std::vector<StateWindow> windows;
  std::vector<int> others;
  for (const int u : units) {
    if (in_memory(u)) {
      windows.push_back(memory_window({u, held(u)}));
    } else {
      others.push_back(u);
    }
  }
  if (!windows.empty() || others.empty()) visitor(windows);
  if (!others.empty()) visit_tiles(others, visitor);
}

// Runs of at most tile_numel elements together. They begin on direct I/O's alignment in every dtype.
std::vector<std::vector<OptimizerStates::Run>> OptimizerStates::plan_tiles(std::span<const int> units) const {
  const int64_t most = std::max(places_.tile_numel / kDirectAlignment, int64_t{1}) * kDirectAlignment;
  std::vector<std::vector<Run>> tiles;
  int64_t room = 0;
  for (const int u : units) {
    for (int64_t begin = held(u).begin; begin < held(u).end;) {
      const int64_t n = std::min(most, held(u).end - begin);
      if (n > room) {
        tiles.emplace_back();
        room = most;
      }
      tiles.back().push_back({u, {begin, begin + n}});
      room -= n;
      begin += n;
    }
  }
  return tiles;
}

std::vector<OptimizerStates::PlacedPart> OptimizerStates::placed_parts(const Run& run) const {
  using enum PlacedPart::Target;
  const int64_t begin = run.range.begin - held(run.unit).begin;
  std::vector<PlacedPart> parts;
  const auto add = [&](PlacedPart::Target target, NvmeStore& store, const Extent& extent, int64_t size) {
    parts.push_back(
        {target, {&store, extent, begin * size, round_up(run.range.numel() * size, kDirectAlignment)}});
  };
  if (const Extent* file = param_file(run.unit)) {
    add(param, places_.params->files(), *file, size_of(layout_->unit(run.unit).dtype));
  }
  for (const auto& [column, target] : {std::pair{Column::master, master}, std::pair{Column::moment1, moment1},
                                       std::pair{Column::moment2, moment2}}) {
    if (const auto& file = cell(column, run.unit).file)
      add(target, *places_.files, *file, size_of(dtype_of(column)));
  }
  return parts;
}

void OptimizerStates::visit_tiles(std::span<const int> units, const Visitor& visitor) {
  const std::vector<std::vector<Run>> plan = plan_tiles(units);
  std::vector<Tile> tiles;
  for (const std::vector<Run>& runs : plan) {
    Tile& tile = tiles.emplace_back();
    for (const Run& run : runs) {
      for (const PlacedPart& placed : placed_parts(run)) tile.parts.push_back(placed.part);
    }
  }
  ring_->run(tiles, [&](size_t i, std::span<const std::span<std::byte>> parts) {
    std::vector<StateWindow> windows;
    size_t next = 0;
    for (const Run& run : plan[i]) {
      StateWindow& window = windows.emplace_back(memory_window(run));
      for (const PlacedPart& placed : placed_parts(run)) {
        std::byte* data = parts[next++].data();
        switch (placed.target) {
          case PlacedPart::Target::param:
            window.param = data;
            if (is_param(Column::master, run.unit)) window.master = reinterpret_cast<float*>(data);
            break;
          case PlacedPart::Target::master:
            window.master = reinterpret_cast<float*>(data);
            break;
          case PlacedPart::Target::moment1:
            window.moment[0] = data;
            break;
          case PlacedPart::Target::moment2:
            window.moment[1] = data;
            break;
        }
      }
    }
    visitor(windows);
  });
}

TileRingStats OptimizerStates::take_stats() {
  return ring_->take_stats();
}

}  // namespace aliquot
