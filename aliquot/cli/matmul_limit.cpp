#include "aliquot/cli/matmul_limit.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>

#include "aliquot/engine/parameters.h"

namespace aliquot {

double matmul_flops_per_s(DType dtype) {
  using Clock = std::chrono::steady_clock;
  // Large enough for the best rate, small enough to stay in the last-level cache.
  constexpr int64_t n = 768;
  constexpr int kTries = 4;
  const c10::AutoGradMode no_grad(false);
  const at::Tensor a = at::ones({n, n}, scalar_type(dtype)), b = at::ones({n, n}, scalar_type(dtype));
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    at::mm(a, b);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * n * n * n / seconds);
  }
  return best;
}

}  // namespace aliquot
