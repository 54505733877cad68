// The loops that touch every parameter: update, sum of squares, rank-order sum, 16-bit conversion.
//
// Torch-free: pointers to contiguous elements and counts. Every function gives the same bits on every SIMD
// target the machine may have (AVX-512, AVX2, NEON, none), whatever the alignment of its pointers and however
// a piece is cut into calls: see [Note: arithmetic] in aliquot/reduce/arithmetic.md, whose paragraphs A2, A4,
// A5 and A6 are implemented here. Only the sign and payload of a NaN that arithmetic produced are the
// machine's own.
//
// Pointers need no alignment beyond their element's. Nothing here allocates. Several threads may work on
// disjoint pieces. Nothing throws, except that the first call of a process throws UsageError if ALIQUOT_SIMD
// names a target that the machine lacks; `current_target` is the call to make where that is wanted.
#pragma once

#include <cstdint>
#include <span>

#include "aliquot/config/config.h"

namespace aliquot::kernels {

// ---- conversion -----------------------------------------------------------------------------------------

/// out[i] = float(in[i]); exact. `in` has dtype `dtype`. In and out do not overlap.
void widen(const void* in, DType dtype, float* out, int64_t n);
/// out[i] = in[i] rounded to nearest even in `dtype` (a copy for fp32). NaN stays NaN (made quiet, its sign
/// and the top of its payload kept), subnormals are kept, what is too large becomes infinity. In and out do
/// not overlap.
void narrow(const float* in, void* out, DType dtype, int64_t n);

/// out[i] = in[i] rounded to one of its two bf16 neighbours at random, the nearer one more often, so that the
/// mean is in[i] itself: sums of many small changes do not stall. The random number is a function of `key`
/// and first + i alone ([Note: arithmetic] A6). What is not finite is as `narrow` makes it.
void narrow_stochastic(const float* in, void* out, int64_t n, uint32_t key, int64_t first);

// ---- A2, A3: sums ---------------------------------------------------------------------------------------

/// A2: s = float(x₀[i]); s += float(x_r[i]) for r = 1…N−1 in fp32; `inputs[r]` has n elements of `dtype`.
/// A null input counts as +0.0. With `accumulate`, out[i] = out[i] + s, else out[i] = s. `out` has
/// `out_dtype`, rounded once after each addition (A3, grad_accum_dtype). `out` may be one of the inputs if
/// the dtypes are equal.
void reduce(std::span<const void* const> inputs, DType dtype, void* out, DType out_dtype, bool accumulate,
            int64_t n);

/// A4: the sum of squares of one piece in double, in the prescribed order (blocks of 4,096, eight lanes). A
/// piece cut at multiples of 4,096 gives the same bits if the sums of its parts are added in order.
double sum_of_squares(const void* x, DType dtype, int64_t n);

// ---- A6: updates ----------------------------------------------------------------------------------------
//
// In the formulas x = float(G[i])·F is rounded to fp32. [[ … ]] is computed in double, with fused
// multiply-adds and the hyperparameters as doubles, and rounded once to fp32: opposite terms do not cancel to
// noise, and the sign that Lion takes is the true one. Everything else is fp32, each operation rounded once,
// fma(a, b, c) = a·b + c being one. The names rate, eps', shrink are scalars computed in double and rounded
// once to fp32.
//
// One step from equal state lies within 2 ulp(p) + 4 ulp(lr·update) of the formula in exact arithmetic,
// moments within 1 ulp.

/// What one update of one segment piece reads and writes; n elements each. Memory of different pointers does
/// not overlap.
struct Slice {
  float* master = nullptr;     ///< fp32 parameter: read and written
  const void* grad = nullptr;  ///< sum of gradients G, of dtype `grad_dtype`
  DType grad_dtype = DType::fp32;
  float factor = 1.0F;       ///< F of A5: unscaling, averaging and clipping in one
  float* moment1 = nullptr;  ///< the first of `moment_names` (optimizer.h); null where there is none
  float* moment2 = nullptr;  ///< the second: Adam's and Lamb's exp_avg_sq
  void* publish = nullptr;   ///< the 16-bit parameter, written as narrow(master); null when the master is it
  DType publish_dtype = DType::bf16;
  int64_t n = 0;
};

/// Hyperparameters of one step of one segment. `step` counts from 1 and is the segment's own (bias
/// corrections follow it); before step 1 the moments are zero, or Adagrad's initial accumulator.
struct Hyper {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool bias_correction = true;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  int64_t step = 1;
};

/// Adam with L2 decay:
///   g = x + wd·p;  m = [[β1·m + (1−β1)·g]];  v = [[β2·v + (1−β2)·g²]];  p = fma(−rate, m/(√v + eps'), p)
///   rate = lr·√bc2/bc1, eps' = eps·√bc2, bc = 1 − βᵗ (1 without bias_correction): lr·(m/bc1)/(√(v/bc2) +
///   eps), rewritten.
/// g stays in double.
void adam(const Slice& s, const Hyper& h);

/// AdamW: as Adam with g = x, and the last line p = fma(−rate, m/(√v + eps'), fma(−shrink, p, p)), shrink =
/// lr·wd.
void adamw(const Slice& s, const Hyper& h);

/// SGD as torch.optim.SGD:
///   g = x + wd·p (double);  b = [[μ·b + (1−dampening)·g]], on the first step [[g]];  d = b;  p = fma(−lr, d,
///   p)
/// With nesterov d = [[g + μ·b]], b before rounding; with μ = 0 there is no buffer and d = [[g]].
void sgd(const Slice& s, const Hyper& h);

/// Lion (arXiv:2302.06675):
///   c = β1·m + (1−β1)·x (double);  p = fma(−shrink, p, p) − lr·sign(c), sign(0) = 0;  m = [[β2·m +
///   (1−β2)·x]]
void lion(const Slice& s, const Hyper& h);

/// Adagrad: g = x + wd·p (double);  v = [[v + g²]];  p = fma(−lr, [[g]]/(√v + eps), p).
void adagrad(const Slice& s, const Hyper& h);

/// Sums of squares of one piece, in A4's order: of the parameters before the update, and of the update u.
struct LambNorms {
  double param = 0, update = 0;
};

/// Lamb (arXiv:1904.00962, as FusedLamb), first pass: m and v as Adam's with g = x; then
///   u = fma(wd, p, m/(√v + eps)), with `eps_inside_sqrt` m/√(v + eps).
/// Stores the moments and returns the norms; the sums over all pieces of a parameter give its trust ratio
/// (`lamb_trust_ratio`, optimizer.h).
LambNorms lamb_moments(const Slice& s, const Hyper& h, bool eps_inside_sqrt);

/// Lamb, second pass: p = fma(−rate, u, p), rate = lr·√bc2/bc1 · trust_ratio; u is computed anew from the
/// moments.
void lamb_apply(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double trust_ratio);

// ---- targets --------------------------------------------------------------------------------------------

/// The SIMD targets this machine can run, best first, "SCALAR" last: "AVX3" (AVX-512), "AVX2", "NEON".
std::span<const char* const> available_targets();
/// Name of the target in use. Throws UsageError if ALIQUOT_SIMD names one that the machine lacks.
const char* current_target();
/// Pins the target, as ALIQUOT_SIMD=scalar|avx2|avx512 does; throws UsageError if the machine lacks it. Not
/// while a kernel runs.
void use_target(const char* name);

}  // namespace aliquot::kernels
