// The global gradient norm, and what else the ranks must agree on before an update: one exchange.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/reduce/reducer.h"

namespace aliquot {

/// What one rank brings to a boundary.
struct Vote {
  double sum_of_squares = 0;  ///< t_r of [Note: arithmetic] A4
  int64_t nonfinite_param =
      -1;  ///< the lowest (unit, segment) of its slices that is not finite, as a parameter index
  int64_t nonfinite_order = INT64_MAX;  ///< its position in (unit, segment) order
  double loss_sum = 0;                  ///< of this window's losses on this rank
  int64_t losses = 0;
  int64_t stop = 0;  ///< the person asked this rank to stop
};

/// What all ranks conclude, alike.
struct Verdict {
  double sum_of_squares = 0;  ///< T: Σ_r t_r by rank
  int64_t nonfinite_param = -1;
  double mean_loss = 0;    ///< over ranks and micro-steps; not finite if one of them was not
  int bad_loss_rank = -1;  ///< the lowest rank with a loss that was not finite
  bool stop = false;
};

/// Collective.
Verdict agree(const Comm& comm, const Vote& vote);

/// t_r of rank `rank`'s pieces and the first that is not finite; skips parameters without a gradient in the
/// window. Replicated gradients must have been gathered for a rank other than the own one.
void add_squares(const Layout& layout, const Reducer& reducer, int rank, Vote& vote);

}  // namespace aliquot
