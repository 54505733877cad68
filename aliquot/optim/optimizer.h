// An optimizer as the engine sees it: which numbers it keeps for each parameter, and one call that updates a
// slice.
//
// Torch-free. The formulas are in kernels.h. Differences from DeepSpeed, on purpose:
//   - Lion's sign(0) is 0, as in PyTorch and the paper (DeepSpeed: −lr on CPU, +lr on CUDA);
//   - `AdamW` and `Adam` without "adam_w_mode": false are the same decoupled update everywhere.
#pragma once

#include <string>
#include <vector>

#include "aliquot/config/config.h"
#include "aliquot/optim/kernels.h"

namespace aliquot {

/// What the optimizer keeps for each parameter, fp32, one number an element, under PyTorch's names:
/// Adam, AdamW, Lamb "exp_avg", "exp_avg_sq"; Lion "exp_avg"; SGD with momentum "momentum_buffer"; Adagrad
/// "sum". The first is `Slice::moment1`, the second `Slice::moment2`.
std::vector<std::string> moment_names(const OptimizerConfig& optimizer);
int moment_count(const OptimizerConfig& optimizer);
/// Every element of every moment before the first step: 0, or Adagrad's initial accumulator.
float initial_moment(const OptimizerConfig& optimizer);

/// Whether betas mean something to it (OneCycle's momentum then cycles beta1).
bool has_betas(OptimizerKind kind);

/// One step of one slice by every optimizer but Lamb. Adagrad's lr_decay is applied here: lr / (1 +
/// (step−1)·lr_decay). Throws UsageError if a beta that the optimizer uses is not in [0, 1): OneCycle's
/// decay_mom_rate raises beta1 without end.
void update(const OptimizerConfig& optimizer, const kernels::Slice& slice, const kernels::Hyper& hyper);

/// Lamb: kernels::lamb_moments on every piece, the sums of squares of each parameter over all its pieces and
/// ranks, then kernels::lamb_apply with this: ‖p‖/‖u‖ within [min_coeff, max_coeff], 1 if either is 0.
double lamb_trust_ratio(const OptimizerConfig& optimizer, kernels::LambNorms of_parameter);

}  // namespace aliquot
