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
template <class Grad>
struct LambMoments {
  Slice s;
  const Grad* grad;
  Blend first, second;
  Direction direction;

  template <class D>
  HWY_INLINE hn::Vec<Floats<D>> element(D d, int64_t i) const {
    const Floats<D> f;
    const auto x = wide(d, hn::Mul(load(f, grad + i), hn::Set(f, s.factor)));
    const auto m = rounded(d, first(d, hn::LoadU(f, s.moment1 + i), x));
    const auto v = rounded(d, second(d, hn::LoadU(f, s.moment2 + i), hn::Mul(x, x)));
    store(f, m, s.moment1 + i);
    store(f, v, s.moment2 + i);
    return direction(f, hn::LoadU(f, s.master + i), m, v);
  }

  LambNorms block(int64_t begin, int64_t end) const {
    using D = LaneSums::D;
    const Floats<D> f;
    LaneSums params, updates;
    int64_t i = begin;
    for (; i + kGroup <= end; i += kGroup) {
      for (int64_t k = 0; k < LaneSums::kVectors; ++k) {
        const int64_t at = i + k * LaneSums::kLanes;
        params.add(k, hn::LoadU(f, s.master + at));
        updates.add(k, element(D(), at));
      }
    }
    float p[kGroup] = {}, u[kGroup] = {};
    for (int64_t j = 0; i + j < end; ++j) {
      const hn::CappedTag<double, 1> one;
      p[j] = s.master[i + j];
      store(Floats<decltype(one)>(), element(one, i + j), u + j);
    }
    for (int64_t k = 0; k < LaneSums::kVectors; ++k) {
      params.add(k, hn::LoadU(f, p + k * LaneSums::kLanes));
      updates.add(k, hn::LoadU(f, u + k * LaneSums::kLanes));
    }
    return {params.joined(), updates.joined()};
  }
};

LambNorms LambFirst(const Slice& s, const Hyper& h, bool eps_inside_sqrt) {
  LambNorms norms;
  visit(s.grad, s.grad_dtype, [&](const auto* grad) {
    using Grad = std::remove_cvref_t<decltype(*grad)>;
    const LambMoments<Grad> pass{s, grad, Blend(h.beta1), Blend(h.beta2), direction_of(h, eps_inside_sqrt)};
    for (int64_t i = 0; i < s.n; i += kBlock) {
      const LambNorms block = pass.block(i, std::min(i + kBlock, s.n));
      norms.param += block.param;
      norms.update += block.update;
    }
  });
  return norms;
}

template <class Publish>
void lamb_second(const Slice& s, Publish* publish, Direction direction, float rate) {
  const auto element = [=](auto d, int64_t i) HWY_ATTR {
    const auto p = hn::LoadU(d, s.master + i);
    const auto u = direction(d, p, hn::LoadU(d, s.moment1 + i), hn::LoadU(d, s.moment2 + i));
    const auto moved = fused(hn::Set(d, -rate), u, p);
    store(d, moved, s.master + i);
    store(d, moved, publish + i);
  };
  for_each(hn::ScalableTag<float>(), s.n, element);
}

void LambSecond(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double coeff) {
  const auto t = static_cast<double>(h.step);
  const double correction =
      h.bias_correction ? std::sqrt(1 - std::pow(h.beta2, t)) / (1 - std::pow(h.beta1, t)) : 1;
  const auto rate = static_cast<float>(h.lr * correction * coeff);
  const Direction direction = direction_of(h, eps_inside_sqrt);
  if (s.publish == nullptr) return lamb_second(s, static_cast<Nothing*>(nullptr), direction, rate);
  visit(s.publish, s.publish_dtype, [&](auto* publish) { lamb_second(s, publish, direction, rate); });
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

void lamb_apply(const Slice& s, const Hyper& h, bool eps_inside_sqrt, double coeff) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(LambSecond)(s, h, eps_inside_sqrt, coeff);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
