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

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void widen(const void* in, DType dtype, float* out, int64_t n) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(Widen)(in, dtype, out, n);
}

void narrow(const float* in, void* out, DType dtype, int64_t n) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(Narrow)(in, out, dtype, n);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
