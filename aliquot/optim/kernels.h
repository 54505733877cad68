// The loops that touch every parameter: update, sum of squares, rank-order sum, 16-bit conversion.
//
// Torch-free: pointers to contiguous elements and counts. Every function gives the same bits on every SIMD
// target the machine may have (AVX2, AVX-512, none): see [Note: arithmetic] in aliquot/reduce/arithmetic.md,
// whose paragraphs A2, A4, A5 and A6 are implemented here. Pointers need no alignment beyond their element's.
// Nothing here allocates or throws.
#pragma once

#include <cstdint>
#include <span>

#include "aliquot/config/config.h"

namespace aliquot::kernels {

// ---- conversion
// ------------------------------------------------------------------------------------------------------

/// out[i] = float(in[i]); exact. `in` has dtype `dtype`.
void widen(const void* in, DType dtype, float* out, int64_t n);
/// out[i] = in[i] rounded to nearest even in `dtype` (a copy for fp32). NaN stays NaN, subnormals are kept.
void narrow(const float* in, void* out, DType dtype, int64_t n);

// ---- A2, A3: sums
// ----------------------------------------------------------------------------------------------------

/// A2: s = float(x₀[i]); s += float(x_r[i]) for r = 1…N−1 in fp32; `inputs[r]` has n elements of `dtype`.
/// A null input counts as +0.0. With `accumulate`, out[i] = out[i] + s, else out[i] = s. `out` has
/// `out_dtype`, rounded once after each addition (A3, grad_accum_dtype).
void reduce(std::span<const void* const> inputs, DType dtype, void* out, DType out_dtype, bool accumulate,
            int64_t n);

/// A4: the sum of squares of one piece in double, in the prescribed order (blocks of 4,096, eight lanes).
double sum_of_squares(const void* x, DType dtype, int64_t n);

// ---- A6: updates
// -----------------------------------------------------------------------------------------------------

/// What one update of one segment piece reads and writes; n elements each.
struct Slice {
  float* master = nullptr;  ///< fp32 parameter: read and written
  const void* grad =
      nullptr;  ///< sum of gradients G, of dtype `grad_dtype`; the update reads float(G[i]) * factor
  DType grad_dtype = DType::fp32;
  float factor = 1.0F;  ///< F of A5: unscaling, averaging and clipping in one
  float* moment1 =
      nullptr;  ///< exp_avg (Adam, Lion, Lamb) or momentum buffer (SGD); null where the optimizer has none
  float* moment2 = nullptr;  ///< exp_avg_sq (Adam, Lamb) or sum of squares (Adagrad)
  void* publish =
      nullptr;  ///< the 16-bit parameter, written as narrow(master); null when the master is the parameter
  DType publish_dtype = DType::bf16;
  int64_t n = 0;
};

/// Hyperparameters of one step of one segment: doubles, rounded to fp32 once inside. `step` counts from 1 and
/// is the segment's own (bias corrections follow it).
struct Hyper {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool bias_correction = true;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  int64_t step = 1;
};

/// Adam with L2 decay (g += wd·p): m = β1·m + (1−β1)g; v = β2·v + (1−β2)g²; p −= lr/bc1 · m / (√v/√bc2 +
/// eps).
void adam(const Slice& s, const Hyper& h);
/// AdamW: p −= lr·wd·p (the old p), then as Adam without decay in g.
void adamw(const Slice& s, const Hyper& h);
/// SGD as torch.optim.SGD: g += wd·p; buf = g on the first step, else momentum·buf + (1−dampening)g; nesterov
/// g + momentum·buf.
void sgd(const Slice& s, const Hyper& h);
/// Lion: c = β1·m + (1−β1)g; p = p(1−lr·wd) − lr·sign(c) with sign(0) = 0; m = β2·m + (1−β2)g.
void lion(const Slice& s, const Hyper& h);
/// Adagrad: g += wd·p; v += g²; p −= lr·g/(√v + eps).
void adagrad(const Slice& s, const Hyper& h);

/// Lamb, first pass: moments are updated, and the sums of squares of p and of u = m/(√v+eps) + wd·p over the
/// piece are returned in A4's order (`eps_inside_sqrt`: m/√(v+eps)).
struct LambNorms {
  double param = 0, update = 0;
};
LambNorms lamb_moments(const Slice& s, const Hyper& h, bool eps_inside_sqrt);
/// Lamb, second pass: p −= lr·√bc2/bc1 · coeff · u, u recomputed from the moments.
void lamb_apply(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double coeff);

// ---- targets
// ---------------------------------------------------------------------------------------------------------

/// The SIMD targets this machine can run, best first: "AVX3", "AVX2", "SCALAR".
std::span<const char* const> available_targets();
/// Name of the target in use.
const char* current_target();
/// Pins the target (tests, and ALIQUOT_SIMD=scalar|avx2|avx512); throws UsageError if the machine lacks it.
void use_target(const char* name);

}  // namespace aliquot::kernels
