// What one rank's optimizer keeps, unit by unit: fp32 masters and moments, in memory or on NVMe.
//
// [Note: windows]
// The update needs master, moments and the published parameter of the same elements at the same time. `visit`
// brings them into memory window by window and keeps what was written. Where everything is in memory there is
// one visit with a window per unit and nothing moves. Otherwise the columns that are on NVMe go through a
// ring: while one tile is computed the next is read and the last written. Updates are element by element, so
// neither windows nor tiles change a bit ([Note: arithmetic] E3).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "aliquot/layout/layout.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/pager/unit_store.h"

namespace aliquot {

/// The numbers kept for an element. The master of an fp32 parameter is the parameter itself.
enum class Column { master, moment1, moment2 };
inline constexpr int kColumns = 3;

/// Elements of one unit that are in memory during a visit; null where a column is not kept.
struct StateWindow {
  int unit = 0;
  Range range;  ///< elements of the unit; the pointers are to range.begin
  float* master = nullptr;
  std::array<float*, 2> moment{};
  std::byte* param = nullptr;  ///< in compute dtype
};

class OptimizerStates {
 public:
  /// Called with windows that do not overlap.
  using Visitor = std::function<void(std::span<const StateWindow>)>;

  /// Masters are filled from the store's parameters, which must hold their initial values; moments are zero.
  /// Throws std::bad_alloc.
  OptimizerStates(std::shared_ptr<const Layout> layout, Placement placement, int moments, UnitStore& store,
                  int rank, const std::shared_ptr<Meter>& meter);

  /// The elements of unit `u` that this rank keeps: its slice, or all (replicated optimizer).
  Range held(int u) const;
  /// The windows of `units`, which are in ascending order, together cover all that is held of them.
  void visit(std::span<const int> units, const Visitor& visitor);
  /// Elements of unit `u` from `begin` on, within what is held.
  void read(Column column, int u, int64_t begin, std::span<float> out) const;
  void write(Column column, int u, int64_t begin, std::span<const float> values);

 private:
  std::byte* param(int u) const;
  float* column(Column column, int u) const;

  std::shared_ptr<const Layout> layout_;
  Placement placement_;
  UnitStore& store_;
  int rank_;
  std::vector<std::array<Buffer, kColumns>> units_;
};

}  // namespace aliquot
