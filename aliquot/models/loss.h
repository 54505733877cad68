// Cross-entropy from hidden states, in chunks of rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace aliquot {

/// Mean over targets ≥ 0 of −log softmax(hidden · weightᵀ)[target], fp32. hidden [n, h], weight [v, h] of one
/// dtype, targets [n] int64; −100 is ignored; without any target the loss is NaN, as in PyTorch.
///
/// Forward keeps the log-sum-exp of each row alone; backward makes each chunk's logits again, so nothing of n
/// × v elements ever exists, and the logits' gradient, which carries the loss scale by then, does not vanish
/// in fp16. The weight's gradient is summed over chunks in fp32.
at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                 const at::Tensor& targets);

/// Rows of a chunk: some 2 Mi logits, but a quarter of the batch at most.
int64_t chunk_rows(int64_t rows, int64_t vocab);

}  // namespace aliquot
