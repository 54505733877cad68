// Lanes of one SIMD target: fused multiply-add, exact widening, nearest-even narrowing, and the loop over
// elements.
//
// Included once per target by every file with kernels (Highway's scheme, whose include guard toggles).
// Everything here gives the same bits on every target [Note: arithmetic, A6]; only the sign and payload of a
// NaN made by arithmetic are the machine's own.
#include <cmath>
#include <cstdint>

#include "aliquot/optim/elements.h"
#include "aliquot/optim/kernels.h"
#include "hwy/highway.h"

#if defined(ALIQUOT_OPTIM_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIQUOT_OPTIM_LANES_INL_H
#undef ALIQUOT_OPTIM_LANES_INL_H
#else
#define ALIQUOT_OPTIM_LANES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The floats, and the 16-bit patterns, that go with the lanes of D.
template <class D>
using Floats = hn::Rebind<float, D>;
template <class D>
using Words = hn::Rebind<uint16_t, D>;

/// a·b + c, rounded once. Highway's scalar target would round twice.
template <class V>
HWY_INLINE V fused(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

/// Double to float, nearest-even, overflow to infinity. Highway's scalar target would saturate.
template <class D, class V>
HWY_INLINE hn::Vec<Floats<D>> rounded(D, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Vec<Floats<D>>(static_cast<float>(x.raw));
#else
  return hn::DemoteTo(Floats<D>(), x);
#endif
}

// ---- load: exact ----------------------------------------------------------------------------------------

template <class F>
HWY_INLINE hn::Vec<F> load(F f, const float* p) {
  return hn::LoadU(f, p);
}

template <class F>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F>> load_words(F, const uint16_t* p) {
  return hn::PromoteTo(hn::RebindToUnsigned<F>(), hn::LoadU(Words<F>(), p));
}

template <class F>
HWY_INLINE hn::Vec<F> load(F f, const BFloat16* p) {
  return hn::BitCast(f, hn::ShiftLeft<16>(load_words(f, &p->bits)));
}

template <class F>
HWY_INLINE hn::Vec<F> load(F f, const Float16* p) {
  const hn::RebindToUnsigned<F> u;
  const hn::RebindToSigned<F> i;
  const auto half = load_words(f, &p->bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u, 0x8000U)));
  const auto magnitude = hn::BitCast(i, hn::And(half, hn::Set(u, 0x7FFFU)));
  // Both exponents are biased, by 15 and 127; infinity and NaN stand at the top of either range.
  const auto rebiased = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(i, 112 << 23));
  const auto top = hn::Gt(magnitude, hn::Set(i, 0x7BFF));
  const auto normal = hn::Add(rebiased, hn::IfThenElseZero(top, hn::Set(i, 112 << 23)));
  // A subnormal is m·2⁻²⁴ = 2⁻¹⁴(1 + m/1024) − 2⁻¹⁴, exactly.
  const auto shifted = hn::BitCast(f, hn::Add(rebiased, hn::Set(i, 1 << 23)));
  const auto subnormal = hn::BitCast(i, hn::Sub(shifted, hn::Set(f, 0x1p-14F)));
  const auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i, 0x0400)), subnormal, normal);
  return hn::BitCast(f, hn::Or(hn::BitCast(u, value), sign));
}

// ---- store: nearest-even, by integer arithmetic ---------------------------------------------------------

template <class F, class V>
HWY_INLINE void store(F f, V x, float* p) {
  hn::StoreU(x, f, p);
}

/// Stores the low halves of words that are below 65,536.
template <class F, class V>
HWY_INLINE void store_words(F, V words, uint16_t* p) {
  hn::StoreU(hn::DemoteTo(Words<F>(), hn::BitCast(hn::RebindToSigned<F>(), words)), Words<F>(), p);
}

template <class F, class V>
HWY_INLINE void store(F, V x, BFloat16* p) {
  const hn::RebindToUnsigned<F> u;
  const hn::RebindToSigned<F> i;
  const auto bits = hn::BitCast(u, x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto even = hn::Add(hn::Set(u, 0x7FFFU), hn::And(high, hn::Set(u, 1U)));
  const auto number = hn::ShiftRight<16>(hn::Add(bits, even));
  const auto nan = hn::Or(high, hn::Set(u, 0x0040U));
  const auto magnitude = hn::BitCast(i, hn::And(bits, hn::Set(u, 0x7FFFFFFFU)));
  const auto is_nan = hn::RebindMask(u, hn::Gt(magnitude, hn::Set(i, 0x7F800000)));
  store_words(F(), hn::IfThenElse(is_nan, nan, number), &p->bits);
}

template <class F, class V>
HWY_INLINE void store(F f, V x, Float16* p) {
  const hn::RebindToUnsigned<F> u;
  const hn::RebindToSigned<F> i;
  const auto bits = hn::BitCast(u, x);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000U));
  const auto magnitude = hn::BitCast(i, hn::And(bits, hn::Set(u, 0x7FFFFFFFU)));

  // From 2⁻¹⁴ on 13 bits are rounded away; from 65,520 on the carry reaches infinity, as it must. 2¹⁶ stands
  // for all above.
  const auto finite = hn::Min(magnitude, hn::Set(i, 143 << 23));
  const auto even = hn::And(hn::ShiftRight<13>(finite), hn::Set(i, 1));
  const auto rebiased = hn::Add(finite, hn::Set(i, 0x0FFF - (112 << 23)));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, even));
  // Below, the last place of a half is 2⁻²⁴, that of a float in [½, 1): adding ½ rounds there.
  const auto shifted = hn::Add(hn::BitCast(f, magnitude), hn::Set(f, 0.5F));
  const auto subnormal = hn::Sub(hn::BitCast(i, shifted), hn::Set(i, 126 << 23));
  const auto nan = hn::ShiftRight<13>(hn::Or(magnitude, hn::Set(i, 0x00400000)));

  auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i, 113 << 23)), subnormal, normal);
  value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(i, 0x7F800000)), hn::And(nan, hn::Set(i, 0x7FFF)), value);
  store_words(f, hn::Or(hn::BitCast(u, value), sign), &p->bits);
}

// ---- loops ----------------------------------------------------------------------------------------------

/// body(d, i) for all i < n: first with whole vectors of the lanes of D, then one lane at a time, so that the
/// last few elements see the same arithmetic.
template <class D, class Body>
HWY_INLINE void for_each(D d, int64_t n, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  for (; i < n; ++i) body(hn::CappedTag<hn::TFromD<D>, 1>(), i);
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
