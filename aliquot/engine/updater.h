// The one pass that reads gradients and writes masters, moments and parameters.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/config/config.h"
#include "aliquot/engine/optimizer_states.h"
#include "aliquot/engine/parameters.h"
#include "aliquot/layout/placement.h"
#include "aliquot/optim/kernels.h"
#include "aliquot/reduce/reducer.h"

namespace aliquot {

/// Hyperparameters of one parameter group; group 0 is the default.
struct GroupHyper {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

class Updater {
 public:
  /// `states` are fresh: their moments get the optimizer's initial value.
  Updater(std::shared_ptr<const Layout> layout, Placement placement, const OptimizerConfig& optimizer,
          std::vector<ParamSpec> specs, std::unique_ptr<OptimizerStates> states, int rank);

  /// One step with F = `factor` ([Note: arithmetic] A5) of every parameter with a gradient in the window; the
  /// others keep everything, their step count included. Collective for Lamb (one exchange of two doubles per
  /// parameter).
  void update(const Reducer& reducer, float factor, std::span<const GroupHyper> groups, const Comm& comm);

  OptimizerStates& states() { return *states_; }
  /// Applied steps of parameter `param`.
  int64_t& step(int param) { return steps_[static_cast<size_t>(param)]; }
  bool replicated() const { return placement_.optimizer == Spread::replicated; }

 private:
  /// A piece of a parameter whose states are in memory.
  struct Work {
    int param;
    int64_t param_offset;
    kernels::Slice slice;              // its moments are null where they are 16-bit
    std::array<std::byte*, 2> moment;  // in the states' dtype
  };
  struct Room;

  /// Of unit `u`, what this rank updates: its own pieces, or those of all ranks in order.
  std::vector<Piece> all_pieces(int u) const;
  void fill_moments(float value);
  std::vector<int> units_with_work(const Reducer& reducer) const;
  std::vector<Work> work(std::span<const StateWindow> windows, const Reducer& reducer, float factor) const;
  void update_tile(const Work& tile, std::span<const GroupHyper> groups, Room& room) const;
  kernels::Hyper hyper(int param, std::span<const GroupHyper> groups) const;
  void update_tiles(const std::vector<Work>& work, std::span<const GroupHyper> groups) const;
  void update_lamb(const std::vector<Work>& work, std::span<const GroupHyper> groups, const Comm& comm) const;

  std::shared_ptr<const Layout> layout_;
  Placement placement_;
  OptimizerConfig optimizer_;
  std::vector<ParamSpec> specs_;
  std::unique_ptr<OptimizerStates> states_;
  int rank_;
  std::vector<int64_t> steps_;
};

}  // namespace aliquot
