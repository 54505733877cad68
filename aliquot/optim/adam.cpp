#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/adam.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include "aliquot/optim/targets.h"
#include "aliquot/optim/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

/// Adam (decoupled = false) and AdamW. Both corrections of bias are moved into the two scalars `rate` and
/// `eps`: lr/bc1 · m/(√v/√bc2 + eps) = (lr·√bc2/bc1) · m/(√v + eps·√bc2), one rounding fewer.
template <bool decoupled>
struct Adam {
  float* exp_avg;
  float* exp_avg_sq;
  Blend first, second;
  double weight_decay;
  float rate, eps, shrink;

  Adam(const Slice& s, const Hyper& h)
      : exp_avg(s.moment1),
        exp_avg_sq(s.moment2),
        first(h.beta1),
        second(h.beta2),
        weight_decay(h.weight_decay),
        shrink(static_cast<float>(h.lr * h.weight_decay)) {
    const double root2 = std::sqrt(bias_correction(h, h.beta2));
    rate = static_cast<float>(h.lr * root2 / bias_correction(h, h.beta1));
    eps = static_cast<float>(h.eps * root2);
  }

  template <class D, class V>
  HWY_INLINE V operator()(D d, int64_t i, V p, V x) const {
    const Floats<D> f;
    const auto g = decoupled ? wide(d, x) : decayed(d, weight_decay, p, x);
    const V m = rounded(d, first(d, hn::LoadU(f, exp_avg + i), g));
    const V v = rounded(d, second(d, hn::LoadU(f, exp_avg_sq + i), hn::Mul(g, g)));
    hn::StoreU(m, f, exp_avg + i);
    hn::StoreU(v, f, exp_avg_sq + i);
    const V direction = hn::Div(m, hn::Add(hn::Sqrt(v), hn::Set(f, eps)));
    return fused(hn::Set(f, -rate), direction, decoupled ? shrunk(f, shrink, p) : p);
  }
};

void AdamL2(const Slice& s, const Hyper& h) {
  update(s, Adam<false>(s, h));
}
void AdamW(const Slice& s, const Hyper& h) {
  update(s, Adam<true>(s, h));
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(AdamL2);
HWY_EXPORT(AdamW);

void adam(const Slice& s, const Hyper& h) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(AdamL2)(s, h);
}

void adamw(const Slice& s, const Hyper& h) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(AdamW)(s, h);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
