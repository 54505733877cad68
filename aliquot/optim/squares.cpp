#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/squares.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include "aliquot/optim/squares-inl.h"
#include "aliquot/optim/targets.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE void add_group(LaneSums& sums, const T* x) {
  for (int64_t k = 0; k < LaneSums::kVectors; ++k) {
    sums.add(k, load(Floats<LaneSums::D>(), x + k * LaneSums::kLanes));
  }
}

template <class T>
double block_sum(const T* x, int64_t n) {
  LaneSums sums;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) add_group(sums, x + i);
  if (i < n) {
    T padded[kGroup] = {};  // adding a zero square changes no lane
    std::copy(x + i, x + n, padded);
    add_group(sums, padded);
  }
  return sums.joined();
}

template <class T>
double piece_sum(const T* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += block_sum(x + i, std::min(kBlock, n - i));
  return total;
}

double SumOfSquares(const void* x, DType dtype, int64_t n) {
  double sum = 0;
  visit(x, dtype, [&](const auto* elements) { sum = piece_sum(elements, n); });
  return sum;
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(SumOfSquares);

double sum_of_squares(const void* x, DType dtype, int64_t n) {
  choose_target();
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, dtype, n);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
