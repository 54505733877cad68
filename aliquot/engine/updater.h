// The optimizer's states and the one pass that reads gradients and writes masters, moments and parameters.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/config/config.h"
#include "aliquot/engine/parameters.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/optim/kernels.h"
#include "aliquot/pager/unit_store.h"
#include "aliquot/reduce/reducer.h"

namespace aliquot {

/// Hyperparameters of one parameter group; group 0 is the default.
struct GroupHyper {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

class Updater {
 public:
  /// Masters are widened from the store's parameters, which must hold their initial values.
  Updater(std::shared_ptr<const Layout> layout, Placement placement, const OptimizerConfig& optimizer,
          std::vector<ParamSpec> specs, UnitStore& store, int rank, std::shared_ptr<Meter> meter);

  /// One step with F = `factor` ([Note: arithmetic] A5) of every parameter with a gradient in the window; the
  /// others keep everything, their step count included. Collective for Lamb (one exchange of two doubles per
  /// parameter).
  void update(const Reducer& reducer, float factor, std::span<const GroupHyper> groups, const Comm& comm);

  /// fp32 values of this rank's part of unit `u` from element `unit_offset` on: the master, or moment 0 or 1.
  float* master(int u, int64_t unit_offset);
  float* moment(int index, int u, int64_t unit_offset);
  int moments() const { return moments_; }
  /// Applied steps of parameter `param`.
  int64_t& step(int param) { return steps_[static_cast<size_t>(param)]; }

  /// Rounds masters to the store's 16-bit parameters over a range of this rank's part.
  void publish_from_master(int u, int64_t unit_offset, int64_t numel);
  /// The reverse: a parameter was edited, its master follows.
  void master_from_published(int u, int64_t unit_offset, int64_t numel);

  /// The ranks whose pieces this rank updates: its own, or all (replicated optimizer).
  Range held(int u) const;
  bool replicated() const { return placement_.optimizer == Spread::replicated; }

 private:
  struct UnitState {
    Buffer master, moment[2];
  };
  struct Work {
    int unit, param;
    int64_t unit_offset, numel;
  };

  /// Of unit `u`, what this rank updates: its own pieces, or those of all ranks in order.
  std::vector<Piece> all_pieces(int u) const;
  std::vector<Work> work(const Reducer& reducer) const;
  kernels::Slice slice(const Work& w, const Reducer& reducer, float factor);
  kernels::Hyper hyper(int param, std::span<const GroupHyper> groups) const;
  void update_lamb(const std::vector<Work>& work, const Reducer& reducer, float factor,
                   std::span<const GroupHyper> groups, const Comm& comm);
  std::byte* published(int u, int64_t unit_offset);

  std::shared_ptr<const Layout> layout_;
  Placement placement_;
  OptimizerConfig optimizer_;
  std::vector<ParamSpec> specs_;
  UnitStore& store_;
  int rank_;
  int moments_;
  std::vector<UnitState> units_;
  std::vector<int64_t> steps_;
};

}  // namespace aliquot
