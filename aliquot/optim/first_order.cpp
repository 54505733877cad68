// SGD, Lion and Adagrad: optimizers that keep at most one number per parameter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/first_order.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include "aliquot/optim/targets.h"
#include "aliquot/optim/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

enum class Momentum { none, heavy_ball, nesterov };

template <Momentum kind>
struct Sgd {
  float* buffer;
  Blend momentum;
  double weight_decay;
  float rate;

  // On the first step the buffer, which is zero, becomes the gradient itself: dampening begins with the
  // second.
  Sgd(const Slice& s, const Hyper& h)
      : buffer(s.moment1),
        momentum(h.momentum, h.step == 1 ? 1.0 : 1.0 - h.dampening),
        weight_decay(h.weight_decay),
        rate(static_cast<float>(h.lr)) {}

  template <class D, class V>
  HWY_INLINE V operator()(D d, int64_t i, V p, V x) const {
    const Floats<D> f;
    const auto g = decayed(d, weight_decay, p, x);
    V direction = rounded(d, g);
    if constexpr (kind != Momentum::none) {
      const auto moved = momentum(d, hn::LoadU(f, buffer + i), g);
      direction = rounded(d, moved);
      hn::StoreU(direction, f, buffer + i);
      if (kind == Momentum::nesterov) {
        direction = rounded(d, fused(hn::Set(d, momentum.keep), moved, g));
      }
    }
    return fused(hn::Set(f, -rate), direction, p);
  }
};

void SgdStep(const Slice& s, const Hyper& h) {
  if (h.momentum == 0) return update(s, Sgd<Momentum::none>(s, h));
  if (h.nesterov) return update(s, Sgd<Momentum::nesterov>(s, h));
  update(s, Sgd<Momentum::heavy_ball>(s, h));
}

struct Lion {
  float* exp_avg;
  Blend direction, average;
  double lr;
  float shrink;

  Lion(const Slice& s, const Hyper& h)
      : exp_avg(s.moment1),
        direction(h.beta1),
        average(h.beta2),
        lr(h.lr),
        shrink(static_cast<float>(h.lr * h.weight_decay)) {}

  // Only the sign of c counts, so it is taken from the double: rounding c first could lose it. NaN stays NaN.
  template <class D, class V>
  HWY_INLINE V operator()(D d, int64_t i, V p, V x) const {
    const Floats<D> f;
    const V m = hn::LoadU(f, exp_avg + i);
    const auto g = wide(d, x);
    const auto c = direction(d, m, g);
    hn::StoreU(rounded(d, average(d, m, g)), f, exp_avg + i);
    const auto signed_lr = hn::CopySign(hn::Set(d, lr), c);
    const auto moving = hn::IfThenElse(hn::IsNaN(c), c, signed_lr);
    const auto step = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(d)), moving);
    return hn::Sub(shrunk(f, shrink, p), rounded(d, step));
  }
};

void LionStep(const Slice& s, const Hyper& h) {
  update(s, Lion(s, h));
}

struct Adagrad {
  float* sum;
  double weight_decay;
  float rate, eps;

  Adagrad(const Slice& s, const Hyper& h)
      : sum(s.moment1),
        weight_decay(h.weight_decay),
        rate(static_cast<float>(h.lr)),
        eps(static_cast<float>(h.eps)) {}

  template <class D, class V>
  HWY_INLINE V operator()(D d, int64_t i, V p, V x) const {
    const Floats<D> f;
    const auto g = decayed(d, weight_decay, p, x);
    const V v = rounded(d, fused(g, g, wide(d, hn::LoadU(f, sum + i))));
    hn::StoreU(v, f, sum + i);
    const V direction = hn::Div(rounded(d, g), hn::Add(hn::Sqrt(v), hn::Set(f, eps)));
    return fused(hn::Set(f, -rate), direction, p);
  }
};

void AdagradStep(const Slice& s, const Hyper& h) {
  update(s, Adagrad(s, h));
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(SgdStep);
HWY_EXPORT(LionStep);
HWY_EXPORT(AdagradStep);

void sgd(const Slice& s, const Hyper& h) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(SgdStep)(s, h);
}

void lion(const Slice& s, const Hyper& h) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(LionStep)(s, h);
}

void adagrad(const Slice& s, const Hyper& h) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(AdagradStep)(s, h);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
