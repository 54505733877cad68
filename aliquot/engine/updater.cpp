#include "aliquot/engine/updater.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "aliquot/optim/optimizer.h"

namespace aliquot {
namespace {

size_t at(int i) {
  return static_cast<size_t>(i);
}

// Elements a thread updates at a time: small enough to balance two threads, large enough to amortise a call.
constexpr int64_t kTile = 1 << 16;

}  // namespace

Updater::Updater(std::shared_ptr<const Layout> layout, Placement placement, const OptimizerConfig& optimizer,
                 std::vector<ParamSpec> specs, UnitStore& store, int rank, std::shared_ptr<Meter> meter)
    : layout_(std::move(layout)),
      placement_(placement),
      optimizer_(optimizer),
      specs_(std::move(specs)),
      store_(store),
      rank_(rank),
      moments_(moment_count(optimizer)),
      steps_(specs_.size(), 0) {
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    const Unit& unit = layout_->unit(u);
    UnitState& state = units_.emplace_back();
    if (!unit.trainable) continue;
    const int64_t bytes = held(u).numel() * 4;
    if (unit.dtype != DType::fp32) state.master = Buffer(meter, Kind::master, bytes);
    for (int m = 0; m < moments_; ++m) state.moment[m] = Buffer(meter, Kind::moments, bytes);
    if (unit.dtype != DType::fp32) master_from_published(u, held(u).begin, held(u).numel());
    if (const float initial = initial_moment(optimizer_); initial != 0) {
      // Pieces only: padding stays zero (A7).
      for (const Piece& piece : all_pieces(u)) {
        std::fill_n(moment(0, u, piece.unit_offset), piece.numel, initial);
      }
    }
  }
}

Range Updater::held(int u) const {
  return replicated() ? Range{0, layout_->unit(u).padded_numel} : layout_->slice(u, rank_);
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

std::byte* Updater::published(int u, int64_t unit_offset) {
  const int64_t size = size_of(layout_->unit(u).dtype);
  if (std::byte* whole = store_.whole(u)) return whole + unit_offset * size;
  return store_.slice(u) + (unit_offset - layout_->slice(u, rank_).begin) * size;
}

float* Updater::master(int u, int64_t unit_offset) {
  if (layout_->unit(u).dtype == DType::fp32) return reinterpret_cast<float*>(published(u, unit_offset));
  return units_[at(u)].master.as<float>() + unit_offset - held(u).begin;
}

float* Updater::moment(int index, int u, int64_t unit_offset) {
  return units_[at(u)].moment[index].as<float>() + unit_offset - held(u).begin;
}

void Updater::publish_from_master(int u, int64_t unit_offset, int64_t numel) {
  const DType dtype = layout_->unit(u).dtype;
  if (dtype != DType::fp32) kernels::narrow(master(u, unit_offset), published(u, unit_offset), dtype, numel);
}

void Updater::master_from_published(int u, int64_t unit_offset, int64_t numel) {
  const DType dtype = layout_->unit(u).dtype;
  if (dtype != DType::fp32) kernels::widen(published(u, unit_offset), dtype, master(u, unit_offset), numel);
}

std::vector<Updater::Work> Updater::work(const Reducer& reducer) const {
  std::vector<Work> work;
  for (int u = 0; u < static_cast<int>(layout_->units().size()); ++u) {
    if (!layout_->unit(u).trainable) continue;
    for (const Piece& piece : all_pieces(u)) {
      const int param = layout_->segment({u, piece.segment}).param;
      if (reducer.used(param)) work.push_back({u, param, piece.unit_offset, piece.numel});
    }
  }
  return work;
}

kernels::Slice Updater::slice(const Work& w, const Reducer& reducer, float factor) {
  const DType dtype = layout_->unit(w.unit).dtype;
  return {.master = master(w.unit, w.unit_offset),
          .grad = reducer.gradients().at(w.unit, w.unit_offset),
          .grad_dtype = reducer.gradients().dtype(),
          .factor = factor,
          .moment1 = moments_ > 0 ? moment(0, w.unit, w.unit_offset) : nullptr,
          .moment2 = moments_ > 1 ? moment(1, w.unit, w.unit_offset) : nullptr,
          .publish = dtype == DType::fp32 ? nullptr : published(w.unit, w.unit_offset),
          .publish_dtype = dtype,
          .n = w.numel};
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
  const std::vector<Work> pieces = work(reducer);
  if (optimizer_.kind == OptimizerKind::lamb) {
    update_lamb(pieces, reducer, factor, groups, comm);
    return;
  }
  std::vector<Work> tiles;
  for (const Work& w : pieces) {
    for (int64_t done = 0; done < w.numel; done += kTile) {
      tiles.push_back({w.unit, w.param, w.unit_offset + done, std::min(kTile, w.numel - done)});
    }
  }
  // Element by element: neither tiles nor threads change a bit.
  at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Work& w = tiles[static_cast<size_t>(i)];
      aliquot::update(optimizer_, slice(w, reducer, factor), hyper(w.param, groups));
    }
  });
}

// Two passes with one exchange between: the trust ratio needs the norms of the whole parameter, summed by
// rank (A4).
void Updater::update_lamb(const std::vector<Work>& work, const Reducer& reducer, float factor,
                          std::span<const GroupHyper> groups, const Comm& comm) {
  std::vector<kernels::LambNorms> own(specs_.size());
  std::vector<kernels::LambNorms> of_piece(work.size());
  at::parallel_for(0, static_cast<int64_t>(work.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Work& w = work[static_cast<size_t>(i)];
      of_piece[static_cast<size_t>(i)] = kernels::lamb_moments(
          slice(w, reducer, factor), hyper(w.param, groups), optimizer_.eps_inside_sqrt);
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
    kernels::lamb_apply(slice(w, reducer, factor), hyper(w.param, groups), optimizer_.eps_inside_sqrt, ratio);
  }
}

}  // namespace aliquot
