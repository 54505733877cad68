#include "aliquot/reduce/norm.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "aliquot/optim/kernels.h"

namespace aliquot {

Verdict agree(const Comm& comm, const Vote& vote) {
  std::vector<Vote> votes(static_cast<size_t>(comm.size()));
  comm.all_gather(&vote, votes.data(), sizeof(Vote), "gradient norm");
  Verdict verdict;
  int64_t lowest = INT64_MAX;
  double loss_sum = 0;
  int64_t losses = 0;
  for (size_t r = 0; r < votes.size(); ++r) {
    const Vote& v = votes[r];
    verdict.sum_of_squares += v.sum_of_squares;
    if (v.nonfinite_param >= 0 && v.nonfinite_order < lowest) {
      lowest = v.nonfinite_order;
      verdict.nonfinite_param = v.nonfinite_param;
    }
    if (!std::isfinite(v.loss_sum) && verdict.bad_loss_rank < 0) verdict.bad_loss_rank = static_cast<int>(r);
    loss_sum += v.loss_sum;
    losses += v.losses;
    verdict.stop = verdict.stop || v.stop != 0;
  }
  verdict.mean_loss = losses > 0 ? loss_sum / static_cast<double>(losses) : std::nan("");
  return verdict;
}

void add_squares(const Layout& layout, const Reducer& reducer, int rank, Vote& vote) {
  struct Work {
    int unit;
    Piece piece;
    int64_t order;
    double q;
  };
  std::vector<Work> work;
  int64_t order = 0;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    if (!layout.unit(u).trainable) continue;
    for (const Piece& piece : layout.pieces(u, rank)) {
      const int param = layout.segment({u, piece.segment}).param;
      if (reducer.used(param)) work.push_back({u, piece, order + piece.segment, 0});
    }
    order += static_cast<int64_t>(layout.unit(u).segments.size());
  }
  // Pieces in parallel, each in its prescribed order: threads do not change a bit.
  at::parallel_for(0, static_cast<int64_t>(work.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Work& w = work[static_cast<size_t>(i)];
      const Gradients& g = reducer.gradients();
      w.q = kernels::sum_of_squares(g.at(w.unit, w.piece.unit_offset), g.dtype(), w.piece.numel);
    }
  });
  double t = 0;
  for (const Work& w : work) {
    t += w.q;
    if (!std::isfinite(w.q) && w.order < vote.nonfinite_order) {
      vote.nonfinite_order = w.order;
      vote.nonfinite_param = layout.segment({w.unit, w.piece.segment}).param;
    }
  }
  vote.sum_of_squares = t;
}

}  // namespace aliquot
