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

/// Whole blocks, side by side: each is a chain of dependent additions, and two chains take the time of one.
template <int count, class T>
void add_blocks(const T* x, double& total) {
  LaneSums sums[count];
  for (int64_t i = 0; i < kBlock; i += kGroup) {
    for (int block = 0; block < count; ++block) add_group(sums[block], x + block * kBlock + i);
  }
  for (const LaneSums& block : sums) total += block.joined();
}

template <class T>
void add_last_block(const T* x, int64_t n, double& total) {
  LaneSums sums;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) add_group(sums, x + i);
  T padded[kGroup] = {};  // adding a zero square changes no lane
  std::copy(x + i, x + n, padded);
  add_group(sums, padded);
  total += sums.joined();
}

template <class T>
double piece_sum(const T* x, int64_t n) {
  double total = 0;
  int64_t i = 0;
  for (; i + 2 * kBlock <= n; i += 2 * kBlock) add_blocks<2>(x + i, total);
  for (; i + kBlock <= n; i += kBlock) add_blocks<1>(x + i, total);
  if (i < n) add_last_block(x + i, n - i, total);
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
