// Lamb's two passes: between them lies the exchange of the two norms of each parameter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/lamb.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include "aliquot/optim/squares-inl.h"
#include "aliquot/optim/targets.h"
#include "aliquot/optim/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

/// u = m/(√v + eps) + weight_decay·p, or with √(v + eps): the same bits in both passes.
struct Direction {
  float eps, weight_decay;
  bool eps_inside_sqrt;

  template <class F, class V>
  HWY_INLINE V operator()(F f, V p, V m, V v) const {
    const V added = hn::Set(f, eps);
    const V root = eps_inside_sqrt ? hn::Sqrt(hn::Add(v, added)) : hn::Add(hn::Sqrt(v), added);
    return fused(hn::Set(f, weight_decay), p, hn::Div(m, root));
  }
};

Direction direction_of(const Hyper& h, bool eps_inside_sqrt) {
  return {static_cast<float>(h.eps), static_cast<float>(h.weight_decay), eps_inside_sqrt};
}

/// Updates the moments of one block after another and sums the squares of p and u.
struct LambMoments {
  Slice s;
  Blend first, second;
  Direction direction;

  /// Stores the new moments of a few elements, whose gradients are at `grad`, and returns u.
  template <class D>
  HWY_INLINE hn::Vec<Floats<D>> element(D d, const float* grad, int64_t i) const {
    const Floats<D> f;
    const auto x = wide(d, hn::Mul(hn::LoadU(f, grad), hn::Set(f, s.factor)));
    const auto m = rounded(d, first(d, hn::LoadU(f, s.moment1 + i), x));
    const auto v = rounded(d, second(d, hn::LoadU(f, s.moment2 + i), hn::Mul(x, x)));
    hn::StoreU(m, f, s.moment1 + i);
    hn::StoreU(v, f, s.moment2 + i);
    return direction(f, hn::LoadU(f, s.master + i), m, v);
  }

  LambNorms block(const float* grad, int64_t begin, int64_t n) const {
    const LaneSums::D d;
    const Floats<LaneSums::D> f;
    LaneSums params, updates;
    int64_t i = 0;
    for (; i + kGroup <= n; i += kGroup) {
      for (int64_t k = 0; k < LaneSums::kVectors; ++k) {
        const int64_t at = i + k * LaneSums::kLanes;
        params.add(k, hn::LoadU(f, s.master + begin + at));
        updates.add(k, element(d, grad + at, begin + at));
      }
    }
    float p[kGroup] = {}, u[kGroup] = {};  // adding a zero square changes no lane
    for (int64_t j = 0; i + j < n; ++j) {
      const hn::CappedTag<double, 1> one;
      p[j] = s.master[begin + i + j];
      hn::StoreU(element(one, grad + i + j, begin + i + j), Floats<decltype(one)>(), u + j);
    }
    for (int64_t k = 0; k < LaneSums::kVectors; ++k) {
      params.add(k, hn::LoadU(f, p + k * LaneSums::kLanes));
      updates.add(k, hn::LoadU(f, u + k * LaneSums::kLanes));
    }
    return {params.joined(), updates.joined()};
  }
};

LambNorms LambFirst(const Slice& s, const Hyper& h, bool eps_inside_sqrt) {
  const LambMoments pass{s, Blend(h.beta1), Blend(h.beta2), direction_of(h, eps_inside_sqrt)};
  LambNorms norms;
  float room[kBlock];
  for (int64_t begin = 0; begin < s.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, s.n - begin);
    const LambNorms block = pass.block(as_floats(s.grad, s.grad_dtype, begin, n, room), begin, n);
    norms.param += block.param;
    norms.update += block.update;
  }
  return norms;
}

/// p − rate·u.
struct LambApply {
  const float* exp_avg;
  const float* exp_avg_sq;
  Direction direction;
  float rate;

  template <class D, class V>
  HWY_INLINE V operator()(D, int64_t i, V p, V) const {
    const Floats<D> f;
    const V u = direction(f, p, hn::LoadU(f, exp_avg + i), hn::LoadU(f, exp_avg_sq + i));
    return fused(hn::Set(f, -rate), u, p);
  }
};

void LambSecond(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double trust_ratio) {
  const double correction = std::sqrt(bias_correction(h, h.beta2)) / bias_correction(h, h.beta1);
  const auto rate = static_cast<float>(h.lr * correction * trust_ratio);
  Slice pass = s;
  pass.grad = s.master;  // the gradient is in the moments already: none is read or widened
  pass.grad_dtype = DType::fp32;
  update(pass, LambApply{s.moment1, s.moment2, direction_of(h, eps_inside_sqrt), rate});
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(LambFirst);
HWY_EXPORT(LambSecond);

LambNorms lamb_moments(const Slice& s, const Hyper& h, bool eps_inside_sqrt) {
  choose_target();
  return HWY_DYNAMIC_DISPATCH(LambFirst)(s, h, eps_inside_sqrt);
}

void lamb_apply(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double trust_ratio) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(LambSecond)(s, h, eps_inside_sqrt, trust_ratio);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
