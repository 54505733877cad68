#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/convert.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include "aliquot/optim/convert-inl.h"
#include "aliquot/optim/targets.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

void Widen(const void* in, DType dtype, float* out, int64_t n) {
  visit(in, dtype, [&](const auto* elements) { convert(elements, out, n); });
}

void Narrow(const float* in, void* out, DType dtype, int64_t n) {
  narrow_into(out, dtype, 0, n, in);
}

/// Bits of a counter, mixed as MurmurHash3 ends: every bit depends on every other.
template <class U, class V>
HWY_INLINE V mixed(U u, V x) {
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  x = hn::Mul(x, hn::Set(u, 0x85EBCA6BU));
  x = hn::Xor(x, hn::ShiftRight<13>(x));
  x = hn::Mul(x, hn::Set(u, 0xC2B2AE35U));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

void NarrowStochastic(const float* in, BFloat16* out, int64_t n, uint32_t key, int64_t first) {
  for_each(hn::ScalableTag<float>(), n, [=](auto f, int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(f)> u;
    const hn::RebindToSigned<decltype(f)> s;
    const auto counter = hn::Iota(u, static_cast<uint32_t>(first + i));
    const auto random = hn::And(mixed(u, hn::Xor(mixed(u, counter), hn::Set(u, key))), hn::Set(u, 0xFFFFU));
    const auto x = hn::LoadU(f, in + i);
    const auto bits = hn::BitCast(u, x);
    const auto magnitude = hn::BitCast(s, hn::And(bits, hn::Set(u, 0x7FFFFFFFU)));
    const auto finite = hn::RebindMask(u, hn::Lt(magnitude, hn::Set(s, 0x7F800000)));
    // A carry into the exponent is the next number; the low half is cut off by what stores it.
    const auto up = hn::And(hn::Add(bits, random), hn::Set(u, 0xFFFF0000U));
    store(f, hn::BitCast(f, hn::IfThenElse(finite, up, bits)), out + i);
  });
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(NarrowStochastic);

void widen(const void* in, DType dtype, float* out, int64_t n) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(Widen)(in, dtype, out, n);
}

void narrow(const float* in, void* out, DType dtype, int64_t n) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(Narrow)(in, out, dtype, n);
}

void narrow_stochastic(const float* in, void* out, int64_t n, uint32_t key, int64_t first) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(NarrowStochastic)(in, static_cast<BFloat16*>(out), n, key, first);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
