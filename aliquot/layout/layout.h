// Where every element of every parameter lies: units, segments, slices, pieces. Pure integer arithmetic.
//
// [Note: layout]
// A *unit* is a flat run of parameters of one dtype, one trainability and one rank class (matrices, or
// vectors and scalars), in registration order; a *segment* is one parameter inside it. Every segment starts
// on 64 bytes. A unit is padded to a multiple of world × 64 bytes, and rank r owns the r-th equal *slice*. A
// *piece* is (segment ∩ slice): what one rank owns of one parameter. Units depend on the model alone; slices
// on the units and the world ([Note: arithmetic] A7). No setting (bucket, prefetch, persistence, stage)
// changes a layout.
//
// A class's open unit closes when the next parameter would make it larger than unit_bytes = clamp(model bytes
// / 64, 1 MiB, 64 MiB), or when the first number in the parameters' names changes (h.3. → h.4.: another
// block) and it holds at least a quarter of that. A parameter is never split over units; one larger than
// unit_bytes is a unit of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aliquot/config/config.h"

namespace aliquot {

/// What the layout needs to know of a parameter.
struct ParamSpec {
  std::string name;
  int64_t numel = 0;
  int64_t ndim = 0;
  DType dtype = DType::fp32;  ///< in which it computes
  bool trainable = true;      ///< requires_grad when the engine was built
  int group = 0;              ///< parameter group, an attribute that does not change the layout
};

struct Segment {
  int param = 0;       ///< index into the specs
  int64_t offset = 0;  ///< elements from the unit's start; a multiple of 64 bytes
  int64_t numel = 0;
};

struct Unit {
  DType dtype = DType::fp32;
  bool trainable = true;
  std::vector<Segment> segments;
  int64_t numel = 0;         ///< elements with gaps, without the padding at the end
  int64_t padded_numel = 0;  ///< a multiple of world × 64 bytes
};

/// Half-open range of elements of a unit.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t numel() const { return end - begin; }
};

/// What one rank owns of one segment.
struct Piece {
  int segment = 0;           ///< index within the unit
  int64_t unit_offset = 0;   ///< elements from the unit's start
  int64_t param_offset = 0;  ///< elements from the parameter's start
  int64_t numel = 0;
};

/// Where a parameter lies.
struct SegmentId {
  int unit = -1, segment = -1;
};

class Layout {
 public:
  /// Throws UsageError for a world below 1.
  Layout(std::span<const ParamSpec> params, int world);

  int world() const { return world_; }
  const std::vector<Unit>& units() const { return units_; }
  const Unit& unit(int u) const { return units_[static_cast<size_t>(u)]; }
  const Segment& segment(SegmentId id) const {
    return unit(id.unit).segments[static_cast<size_t>(id.segment)];
  }
  /// Of parameter `param` (index into the specs).
  SegmentId segment_of(int param) const { return of_param_[static_cast<size_t>(param)]; }

  /// Elements that rank r owns of unit u; all slices of a unit are equally long.
  Range slice(int u, int rank) const;
  int64_t slice_numel(int u) const { return unit(u).padded_numel / world_; }
  int64_t slice_bytes(int u) const { return slice_numel(u) * size_of(unit(u).dtype); }
  int64_t unit_bytes(int u) const { return unit(u).padded_numel * size_of(unit(u).dtype); }

  /// The pieces of rank r in unit u, by segment. Segments without elements in the slice have none.
  std::vector<Piece> pieces(int u, int rank) const;

  /// The closing threshold that this model has, in bytes.
  int64_t unit_limit() const { return unit_limit_; }

 private:
  void assign(std::span<const ParamSpec> params);
  void pad();

  int world_;
  int64_t unit_limit_ = 0;
  std::vector<Unit> units_;
  std::vector<SegmentId> of_param_;
};

/// The first number in a name, -1 without one: "transformer.h.12.ln_1.weight" → 12.
int64_t first_number(const std::string& name);

}  // namespace aliquot
