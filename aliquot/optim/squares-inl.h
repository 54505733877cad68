// Sums of squares in the prescribed order [Note: arithmetic, A4].
#include <algorithm>

#include "aliquot/optim/lanes-inl.h"

#if defined(ALIQUOT_OPTIM_SQUARES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIQUOT_OPTIM_SQUARES_INL_H
#undef ALIQUOT_OPTIM_SQUARES_INL_H
#else
#define ALIQUOT_OPTIM_SQUARES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

constexpr int64_t kBlock = 4096;
constexpr int64_t kGroup = 8;  // elements that go to the eight lanes of a block

/// The eight double lanes of one block, in as many vectors as the target needs.
class LaneSums {
 public:
  using D = hn::CappedTag<double, kGroup>;
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  static constexpr int64_t kVectors = kGroup / kLanes;

  HWY_INLINE LaneSums() {
    for (auto& sum : sums_) sum = hn::Zero(D());
  }

  /// Adds the squares of elements k·kLanes … of a group. The square of a widened float is exact: one
  /// rounding.
  HWY_INLINE void add(int64_t k, hn::Vec<Floats<D>> x) {
    const auto wide = hn::PromoteTo(D(), x);
    sums_[k] = fused(wide, wide, sums_[k]);
  }

  HWY_INLINE double joined() const {
    double lane[kGroup];
    for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums_[k], D(), lane + k * kLanes);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }

 private:
  hn::Vec<D> sums_[kVectors];
};

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
