// Runs of elements between fp32 and another dtype, for the kernels of one target.
#include "aliquot/optim/lanes-inl.h"

#if defined(ALIQUOT_OPTIM_CONVERT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIQUOT_OPTIM_CONVERT_INL_H
#undef ALIQUOT_OPTIM_CONVERT_INL_H
#else
#define ALIQUOT_OPTIM_CONVERT_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

template <class In, class Out>
void convert(const In* in, Out* out, int64_t n) {
  for_each(hn::ScalableTag<float>(), n,
           [=](auto f, int64_t i) HWY_ATTR { store(f, load(f, in + i), out + i); });
}

/// Elements begin … begin + n of `in` as floats: where they lie if they are floats, else widened into `room`.
inline const float* as_floats(const void* in, DType dtype, int64_t begin, int64_t n, float* room) {
  if (dtype == DType::fp32) return static_cast<const float*>(in) + begin;
  visit(in, dtype, [&](const auto* elements) { convert(elements + begin, room, n); });
  return room;
}

/// Writes `values` as elements begin … begin + n of `out`.
inline void narrow_into(void* out, DType dtype, int64_t begin, int64_t n, const float* values) {
  visit(out, dtype, [&](auto* elements) { convert(values, elements + begin, n); });
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
