// What one rank's optimizer keeps, unit by unit: fp32 masters and moments, in memory or on NVMe.
//
// [Note: windows]
// The update needs master, moments and the published parameter of the same elements at the same time. `visit`
// brings them into memory window by window and keeps what was written. What is wholly in memory is one visit
// with a window per unit, and nothing moves. The rest goes tile by tile through a ring (store/tile_ring.h):
// while one tile is computed the next is read and the last is written. Updates are element by element, so
// neither windows nor tiles change a bit ([Note: arithmetic] E3).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aliquot/engine/nvme_unit_store.h"
#include "aliquot/layout/layout.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/pager/unit_store.h"
#include "aliquot/store/tile_ring.h"

namespace aliquot {

/// The numbers kept for an element. The master of an fp32 parameter is the parameter itself.
enum class Column { master, moment1, moment2 };
inline constexpr int kColumns = 3;

/// Elements of one unit that are in memory during a visit; null where a column is not kept.
struct StateWindow {
  int unit = 0;
  Range range;  ///< elements of the unit; the pointers are to range.begin
  float* master = nullptr;
  std::array<std::byte*, 2> moment{};  ///< in the moments' dtype
  std::byte* param = nullptr;          ///< in compute dtype
};

/// How many moments an element has, and their dtype: fp32 or bf16.
struct MomentShape {
  int count = 0;
  DType dtype = DType::fp32;
};

/// Where they are kept.
struct StatePlaces {
  std::shared_ptr<NvmeStore> files;  ///< null: masters and moments are in memory
  double share = 1.0;                ///< of their bytes that goes to NVMe, by whole units, last ones first
  const NvmeUnitStore* params = nullptr;  ///< the unit store, if parameters may be on NVMe
  TileRingOptions ring;
  int64_t tile_numel = int64_t{2} << 20;  ///< elements of one tile, at most
};

class OptimizerStates {
 public:
  /// Called with windows that do not overlap.
  using Visitor = std::function<void(std::span<const StateWindow>)>;

  /// Masters are filled from the store's parameters, which must hold their initial values; moments are zero.
  /// Throws std::bad_alloc, IoError.
  OptimizerStates(std::shared_ptr<const Layout> layout, Placement placement, MomentShape moments,
                  UnitStore& store, StatePlaces places, int rank, std::shared_ptr<Meter> meter);
  ~OptimizerStates();
  OptimizerStates(const OptimizerStates&) = delete;
  OptimizerStates& operator=(const OptimizerStates&) = delete;

  /// The elements of unit `u` that this rank keeps: its slice, or all (replicated optimizer).
  Range held(int u) const;
  DType moment_dtype() const { return moments_.dtype; }
  /// The windows of `units` together cover all that is held of them. Throws IoError; what was visited by then
  /// may or may not be kept.
  void visit(std::span<const int> units, const Visitor& visitor);
  /// Elements of unit `u` from `begin` on, within what is held.
  void read(Column column, int u, int64_t begin, std::span<float> out) const;
  void write(Column column, int u, int64_t begin, std::span<const float> values);

  TileRingStats take_stats();

 private:
  struct Cell {
    Buffer memory;
    std::optional<Extent> file;
  };
  /// A unit's run of elements within a tile.
  struct Run {
    int unit;
    Range range;
  };

  /// Bytes of a run that go through the ring, and which pointer of its window they become.
  struct PlacedPart {
    enum class Target { param, master, moment1, moment2 } target;
    TilePart part;
  };

  void create_cells();
  void fill_master(int u);
  bool in_memory(int u) const;
  DType dtype_of(Column column) const { return column == Column::master ? DType::fp32 : moments_.dtype; }
  bool is_param(Column column, int u) const;
  Cell& cell(Column column, int u) { return units_[static_cast<size_t>(u)][static_cast<size_t>(column)]; }
  const Cell& cell(Column column, int u) const {
    return units_[static_cast<size_t>(u)][static_cast<size_t>(column)];
  }
  const Extent* param_file(int u) const {
    return places_.params == nullptr ? nullptr : places_.params->extent(u);
  }
  std::byte* param(int u) const;
  StateWindow memory_window(const Run& run) const;
  std::vector<std::vector<Run>> plan_tiles(std::span<const int> units) const;
  std::vector<PlacedPart> placed_parts(const Run& run) const;
  void visit_tiles(std::span<const int> units, const Visitor& visitor);

  std::shared_ptr<const Layout> layout_;
  Placement placement_;
  MomentShape moments_;
  UnitStore& store_;
  StatePlaces places_;
  int rank_;
  std::shared_ptr<Meter> meter_;
  std::vector<std::array<Cell, kColumns>> units_;
  std::optional<TileRing> ring_;
};

}  // namespace aliquot
