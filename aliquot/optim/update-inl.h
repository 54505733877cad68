// The one pass over memory of an update [Note: arithmetic, A6].
//
// A formula is given the parameters and the scaled gradients of a few elements, reads and writes its moments
// and returns the new parameters. What blends two numbers (moments, decay added to a gradient) is computed in
// double and rounded once to fp32, so that no hyperparameter is rounded and opposite terms do not cancel to
// noise; what divides or takes a root is fp32. Doubles halve the lanes, which costs nothing here: the loop
// waits for memory.
#include <algorithm>

#include "aliquot/optim/convert-inl.h"
#include "hwy/cache_control.h"

#if defined(ALIQUOT_OPTIM_UPDATE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIQUOT_OPTIM_UPDATE_INL_H
#undef ALIQUOT_OPTIM_UPDATE_INL_H
#else
#define ALIQUOT_OPTIM_UPDATE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> wide(D d, hn::Vec<Floats<D>> x) {
  return hn::PromoteTo(d, x);
}

/// x + weight_decay · p, in double.
template <class D>
HWY_INLINE hn::Vec<D> decayed(D d, double weight_decay, hn::Vec<Floats<D>> p, hn::Vec<Floats<D>> x) {
  return fused(hn::Set(d, weight_decay), wide(d, p), wide(d, x));
}

/// A running mean: keep·old + take·x, in double.
struct Blend {
  double keep, take;

  explicit Blend(double beta) : keep(beta), take(1 - beta) {}
  Blend(double keep, double take) : keep(keep), take(take) {}

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<Floats<D>> old, hn::Vec<D> x) const {
    return fused(hn::Set(d, keep), wide(d, old), hn::Mul(hn::Set(d, take), x));
  }
};

/// 1 − betaᵗ by repeated multiplication: the library's pow may differ in the last place from one host to
/// another.
inline double bias_correction(const Hyper& h, double beta) {
  if (!h.bias_correction) return 1;
  double power = 1;
  for (auto t = static_cast<uint64_t>(h.step); t != 0; t >>= 1, beta *= beta) {
    if (t % 2 == 1) power *= beta;
  }
  return 1 - power;
}

/// p − rate·p, rounded once: decay that does not pass through the gradient.
template <class F>
HWY_INLINE hn::Vec<F> shrunk(F f, float rate, hn::Vec<F> p) {
  return fused(hn::Set(f, -rate), p, p);
}

/// Asks for the lines that the loop reaches 256 elements later: the processor alone follows so many streams
/// less closely, which costs a tenth of the time.
class Ahead {
 public:
  Ahead(const Slice& s, int64_t begin) {
    add(s.master, sizeof(float), begin);
    add(s.grad, size_of(s.grad_dtype), begin);
    add(s.moment1, sizeof(float), begin);
    add(s.moment2, sizeof(float), begin);
    add(s.publish, size_of(s.publish_dtype), begin);
  }

  HWY_INLINE void operator()(int64_t i) const {
    constexpr int64_t kLine = 16;  // floats
    if (i % kLine != 0) return;
    for (int k = 0; k < count_; ++k) hwy::Prefetch(streams_[k].at + i * streams_[k].size);
  }

 private:
  void add(const void* from, int64_t size, int64_t begin) {
    constexpr int64_t kDistance = 256;
    if (from != nullptr)
      streams_[count_++] = {static_cast<const char*>(from) + (begin + kDistance) * size, size};
  }

  struct Stream {
    const char* at;
    int64_t size;
  };
  Stream streams_[5];
  int count_ = 0;
};

/// Elements begin … begin + n of the slice; `grad` are theirs alone.
template <class Formula>
void update_tile(const Slice& s, const Formula& shared_formula, const float* grad, int64_t begin, int64_t n) {
  const Formula formula = shared_formula;  // a local copy can stay in registers: no store can alias it
  float* const master = s.master + begin;
  const float factor = s.factor;
  const Ahead ahead(s, begin);
  const auto element = [=](auto d, int64_t i) HWY_ATTR {
    const Floats<decltype(d)> f;
    ahead(i);
    const auto x = hn::Mul(hn::LoadU(f, grad + i), hn::Set(f, factor));
    hn::StoreU(formula(d, begin + i, hn::LoadU(f, master + i), x), f, master + i);
  };
  for_each(hn::ScalableTag<double>(), n, element);
}

/// A tile's widened gradients and new parameters stay in the first-level cache until its 16-bit parameters
/// are written.
template <class Formula>
void update(const Slice& s, const Formula& formula) {
  constexpr int64_t kTile = 1024;
  float room[kTile];
  for (int64_t begin = 0; begin < s.n; begin += kTile) {
    const int64_t n = std::min(kTile, s.n - begin);
    update_tile(s, formula, as_floats(s.grad, s.grad_dtype, begin, n, room), begin, n);
    if (s.publish != nullptr) narrow_into(s.publish, s.publish_dtype, begin, n, s.master + begin);
  }
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
