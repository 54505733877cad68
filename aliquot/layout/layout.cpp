#include "aliquot/layout/layout.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "aliquot/error.h"
#include "aliquot/memory/buffer.h"

namespace aliquot {
namespace {

constexpr int64_t kMinUnitBytes = int64_t{1} << 20;
constexpr int64_t kMaxUnitBytes = int64_t{64} << 20;

int64_t alignment_numel(DType dtype) {
  return kAlignment / size_of(dtype);
}

// Parameters of one class may share a unit.
int class_of(const ParamSpec& p) {
  return static_cast<int>(p.dtype) * 4 + (p.trainable ? 2 : 0) + (p.ndim <= 1 ? 1 : 0);
}
constexpr int kClasses = 12;

struct OpenUnit {
  int unit = -1;
  int64_t block = -1;  // first number of the names in it
};

}  // namespace

int64_t first_number(const std::string& name) {
  size_t i = 0;
  while (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) == 0) ++i;
  if (i == name.size()) return -1;
  int64_t value = 0;
  // Saturates: only equality matters, and a name may hold any number of digits.
  for (; i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0; ++i) {
    value = std::min<int64_t>(value * 10 + (name[i] - '0'), INT64_MAX / 16);
  }
  return value;
}

Layout::Layout(std::span<const ParamSpec> params, int world) : world_(world), of_param_(params.size()) {
  if (world < 1)
    throw UsageError("layout: the world must have at least one rank, got " + std::to_string(world));
  assign(params);
  pad();
}

void Layout::assign(std::span<const ParamSpec> params) {
  int64_t model_bytes = 0;
  for (const ParamSpec& p : params) model_bytes += p.numel * size_of(p.dtype);
  unit_limit_ = std::clamp(model_bytes / 64, kMinUnitBytes, kMaxUnitBytes);

  std::array<OpenUnit, kClasses> open;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& p = params[i];
    OpenUnit& o = open[static_cast<size_t>(class_of(p))];
    const int64_t size = size_of(p.dtype);
    const int64_t block = first_number(p.name);
    if (o.unit >= 0) {
      const int64_t held = unit(o.unit).numel * size;
      const bool full = held + p.numel * size > unit_limit_;
      const bool next_block = block != o.block && held >= unit_limit_ / 4;
      if (full || next_block) o.unit = -1;
    }
    if (o.unit < 0) {
      o.unit = static_cast<int>(units_.size());
      units_.push_back({.dtype = p.dtype, .trainable = p.trainable, .segments = {}});
    }
    o.block = block;
    Unit& u = units_[static_cast<size_t>(o.unit)];
    const int64_t offset = round_up(u.numel, alignment_numel(p.dtype));
    of_param_[i] = {o.unit, static_cast<int>(u.segments.size())};
    u.segments.push_back({static_cast<int>(i), offset, p.numel});
    u.numel = offset + p.numel;
  }
}

void Layout::pad() {
  for (Unit& u : units_) u.padded_numel = round_up(u.numel, world_ * alignment_numel(u.dtype));
}

Range Layout::slice(int u, int rank) const {
  const int64_t n = slice_numel(u);
  return {n * rank, n * (rank + 1)};
}

std::vector<Piece> Layout::pieces(int u, int rank) const {
  const Range own = slice(u, rank);
  std::vector<Piece> out;
  const auto& segments = unit(u).segments;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t begin = std::max(own.begin, segment.offset);
    const int64_t end = std::min(own.end, segment.offset + segment.numel);
    if (begin < end) out.push_back({static_cast<int>(s), begin, begin - segment.offset, end - begin});
  }
  return out;
}

}  // namespace aliquot
