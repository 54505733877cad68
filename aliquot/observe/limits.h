// What the machine could do at most, and how much of that a run gets: the arithmetic alone. The limit itself
// is measured where there is a matrix multiplication to measure.
#pragma once

#include <cstdint>

namespace aliquot {

/// Floating-point operations of one token's forward and backward: 6·P for the matrix multiplications with
/// parameters (two operations each in forward, four in backward) and 12·L·H·T for those of attention, after
/// PaLM (Chowdhery et al. 2022), appendix B. Recomputation is not counted, and a causal mask saves nothing.
///
/// `parameters` are those a token is multiplied with: no embedding that is only looked up, but a tied head.
constexpr double flops_per_token(int64_t parameters, int64_t layers, int64_t hidden, int64_t seq_len) {
  return 6.0 * static_cast<double>(parameters) +
         12.0 * static_cast<double>(layers) * static_cast<double>(hidden) * static_cast<double>(seq_len);
}

/// The share of the limit, in percent, that `tokens_per_s` of all ranks together amount to; `flops_per_s` is
/// what all their devices do at most. 0 where the limit is not known.
constexpr double percent_of_limit(double flops_per_token, double tokens_per_s, double flops_per_s) {
  return flops_per_s > 0 ? 100 * flops_per_token * tokens_per_s / flops_per_s : 0;
}

}  // namespace aliquot
