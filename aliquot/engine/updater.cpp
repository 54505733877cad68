#include "aliquot/engine/updater.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "aliquot/optim/optimizer.h"

namespace aliquot {
namespace {

size_t at(int i) {
  return static_cast<size_t>(i);
}

// Elements a thread updates at a time: small enough to balance two threads, large enough to amortise a call.
constexpr int64_t kTile = 1 << 16;

std::byte* moved(std::byte* p, int64_t bytes) {
  return p == nullptr ? nullptr : p + bytes;
}

float* as_floats(std::byte* p, DType dtype) {
  return dtype == DType::fp32 ? reinterpret_cast<float*>(p) : nullptr;
}

// The random numbers of stochastic rounding: by step, parameter and moment here, by element in the kernel.
uint32_t rounding_key(int64_t step, int param, size_t moment) {
  uint64_t x = static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(param) * 2 + moment;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return static_cast<uint32_t>(x >> 32);
}

kernels::Slice tile_of(const kernels::Slice& whole, int64_t begin, int64_t n) {
  kernels::Slice tile = whole;
  tile.master += begin;
  tile.grad = static_cast<const std::byte*>(whole.grad) + begin * size_of(whole.grad_dtype);
  if (whole.moment1 != nullptr) tile.moment1 += begin;
  if (whole.moment2 != nullptr) tile.moment2 += begin;
  if (whole.publish != nullptr)
    tile.publish = static_cast<std::byte*>(whole.publish) + begin * size_of(whole.publish_dtype);
  tile.n = n;
  return tile;
}

}  // namespace

Updater::Updater(std::shared_ptr<const Layout> layout, Placement placement, const OptimizerConfig& optimizer,
                 std::vector<ParamSpec> specs, std::unique_ptr<OptimizerStates> states, int rank)
    : layout_(std::move(layout)),
      placement_(placement),
      optimizer_(optimizer),
      specs_(std::move(specs)),
      states_(std::move(states)),
      rank_(rank),
      steps_(specs_.size(), 0) {
  if (const float initial = initial_moment(optimizer_); initial != 0) fill_moments(initial);
}

// Pieces only: padding stays zero (A7).
void Updater::fill_moments(float value) {
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    if (!layout_->unit(u).trainable) continue;
    for (const Piece& piece : all_pieces(u)) {
      const std::vector<float> values(static_cast<size_t>(piece.numel), value);
      states_->write(Column::moment1, u, piece.unit_offset, values);
    }
  }
}

std::vector<Piece> Updater::all_pieces(int u) const {
  if (!replicated()) return layout_->pieces(u, rank_);
  std::vector<Piece> pieces;
  for (int r = 0; r < layout_->world(); ++r) {
    const std::vector<Piece> of_rank = layout_->pieces(u, r);
    pieces.insert(pieces.end(), of_rank.begin(), of_rank.end());
  }
  return pieces;
}

std::vector<int> Updater::units_with_work(const Reducer& reducer) const {
  std::vector<int> units;
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    const Unit& unit = layout_->unit(u);
    if (!unit.trainable) continue;
    const auto used = [&](const Segment& segment) { return reducer.used(segment.param); };
    if (std::any_of(unit.segments.begin(), unit.segments.end(), used)) units.push_back(u);
  }
  return units;
}

std::vector<Updater::Work> Updater::work(std::span<const StateWindow> windows, const Reducer& reducer,
                                         float factor) const {
  std::vector<Work> work;
  for (const StateWindow& window : windows) {
    const DType dtype = layout_->unit(window.unit).dtype;
    for (const Piece& piece : all_pieces(window.unit)) {
      const int param = layout_->segment({window.unit, piece.segment}).param;
      const int64_t begin = std::max(piece.unit_offset, window.range.begin);
      const int64_t n = std::min(piece.unit_offset + piece.numel, window.range.end) - begin;
      if (n <= 0 || !reducer.used(param)) continue;
      const int64_t offset = begin - window.range.begin;
      const DType moments = states_->moment_dtype();
      const std::array<std::byte*, 2> moment{moved(window.moment[0], offset * size_of(moments)),
                                             moved(window.moment[1], offset * size_of(moments))};
      work.push_back(
          {.param = param,
           .param_offset = piece.param_offset + begin - piece.unit_offset,
           .slice = {.master = window.master + offset,
                     .grad = reducer.gradients().at(window.unit, begin),
                     .grad_dtype = reducer.gradients().dtype(),
                     .factor = factor,
                     .moment1 = as_floats(moment[0], moments),
                     .moment2 = as_floats(moment[1], moments),
                     .publish = dtype == DType::fp32 ? nullptr : window.param + offset * size_of(dtype),
                     .publish_dtype = dtype,
                     .n = n},
           .moment = moment});
    }
  }
  return work;
}

kernels::Hyper Updater::hyper(int param, std::span<const GroupHyper> groups) const {
  const GroupHyper& group = groups[at(specs_[at(param)].group)];
  return {.lr = group.lr,
          .beta1 = group.beta1,
          .beta2 = group.beta2,
          .eps = optimizer_.eps,
          .weight_decay = group.weight_decay,
          .bias_correction = optimizer_.bias_correction,
          .momentum = optimizer_.momentum,
          .dampening = optimizer_.dampening,
          .nesterov = optimizer_.nesterov,
          .step = steps_[at(param)]};
}

void Updater::update(const Reducer& reducer, float factor, std::span<const GroupHyper> groups,
                     const Comm& comm) {
  for (size_t p = 0; p < steps_.size(); ++p) {
    if (reducer.used(static_cast<int>(p))) ++steps_[p];
  }
  states_->visit(units_with_work(reducer), [&](std::span<const StateWindow> windows) {
    const std::vector<Work> pieces = work(windows, reducer, factor);
    if (optimizer_.kind == OptimizerKind::lamb) {
      update_lamb(pieces, groups, comm);
    } else {
      update_tiles(pieces, groups);
    }
  });
}

/// Where 16-bit moments are widened for a tile; in the second-level cache.
struct Updater::Room {
  std::array<std::vector<float>, 2> moment;
};

void Updater::update_tile(const Work& tile, std::span<const GroupHyper> groups, Room& room) const {
  kernels::Slice slice = tile.slice;
  const DType dtype = states_->moment_dtype();
  const bool rounds = dtype != DType::fp32;
  for (size_t m = 0; m < 2 && rounds && tile.moment[m] != nullptr; ++m) {
    room.moment[m].resize(static_cast<size_t>(kTile));
    kernels::widen(tile.moment[m], dtype, room.moment[m].data(), slice.n);
    (m == 0 ? slice.moment1 : slice.moment2) = room.moment[m].data();
  }
  aliquot::update(optimizer_, slice, hyper(tile.param, groups));
  for (size_t m = 0; m < 2 && rounds && tile.moment[m] != nullptr; ++m) {
    kernels::narrow_stochastic(room.moment[m].data(), tile.moment[m], slice.n,
                               rounding_key(steps_[at(tile.param)], tile.param, m), tile.param_offset);
  }
}

void Updater::update_tiles(const std::vector<Work>& work, std::span<const GroupHyper> groups) const {
  const int64_t size = size_of(states_->moment_dtype());
  std::vector<Work> tiles;
  for (const Work& w : work) {
    for (int64_t done = 0; done < w.slice.n; done += kTile) {
      tiles.push_back({w.param,
                       w.param_offset + done,
                       tile_of(w.slice, done, std::min(kTile, w.slice.n - done)),
                       {moved(w.moment[0], done * size), moved(w.moment[1], done * size)}});
    }
  }
  // Element by element: neither tiles nor threads change a bit.
  at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
    Room room;
    for (int64_t i = begin; i < end; ++i) update_tile(tiles[static_cast<size_t>(i)], groups, room);
  });
}

// Two passes with one exchange between: the trust ratio needs the norms of the whole parameter, summed by
// rank (A4).
void Updater::update_lamb(const std::vector<Work>& work, std::span<const GroupHyper> groups,
                          const Comm& comm) const {
  std::vector<kernels::LambNorms> own(specs_.size());
  std::vector<kernels::LambNorms> of_piece(work.size());
  at::parallel_for(0, static_cast<int64_t>(work.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Work& w = work[static_cast<size_t>(i)];
      of_piece[static_cast<size_t>(i)] =
          kernels::lamb_moments(w.slice, hyper(w.param, groups), optimizer_.eps_inside_sqrt);
    }
  });
  // Pieces of one parameter come in order of rank, here or in the sum below.
  for (size_t i = 0; i < work.size(); ++i) {
    own[at(work[i].param)].param += of_piece[i].param;
    own[at(work[i].param)].update += of_piece[i].update;
  }
  std::vector<kernels::LambNorms> total = own;
  if (!replicated() && comm.size() > 1) {
    std::vector<kernels::LambNorms> all(specs_.size() * at(comm.size()));
    comm.all_gather(own.data(), all.data(), own.size() * sizeof(kernels::LambNorms), "Lamb's norms");
    total.assign(specs_.size(), {});
    for (size_t i = 0; i < all.size(); ++i) {
      total[i % specs_.size()].param += all[i].param;
      total[i % specs_.size()].update += all[i].update;
    }
  }
  for (const Work& w : work) {
    const double ratio = lamb_trust_ratio(optimizer_, total[at(w.param)]);
    kernels::lamb_apply(w.slice, hyper(w.param, groups), optimizer_.eps_inside_sqrt, ratio);
  }
}

}  // namespace aliquot
