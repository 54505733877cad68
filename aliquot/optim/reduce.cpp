#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aliquot/optim/reduce.cpp"
#include "hwy/foreach_target.h"  // first: it includes this file once per target

#include <cstddef>

#include "aliquot/optim/lanes-inl.h"
#include "aliquot/optim/targets.h"

HWY_BEFORE_NAMESPACE();
namespace aliquot::kernels::HWY_NAMESPACE {

using Inputs = std::span<const void* const>;

template <class In, class F>
HWY_INLINE hn::Vec<F> contribution(F f, const void* input, int64_t i) {
  return input == nullptr ? hn::Zero(f) : load(f, static_cast<const In*>(input) + i);
}

/// Four vectors at a time, so that walking the list of inputs costs little beside loading them.
template <class In, class Out, bool accumulate>
struct Reduce {
  Inputs inputs;
  Out* out;

  template <int count, class F>
  HWY_INLINE void vectors(F f, int64_t begin) const {
    const auto lanes = static_cast<int64_t>(hn::Lanes(f));
    hn::Vec<F> sum[count];
    for (int k = 0; k < count; ++k) sum[k] = contribution<In>(f, inputs[0], begin + k * lanes);
    for (size_t r = 1; r < inputs.size(); ++r) {
      for (int k = 0; k < count; ++k) {
        sum[k] = hn::Add(sum[k], contribution<In>(f, inputs[r], begin + k * lanes));
      }
    }
    for (int k = 0; k < count; ++k) {
      Out* const to = out + begin + k * lanes;
      store(f, accumulate ? hn::Add(load(f, to), sum[k]) : sum[k], to);
    }
  }

  void operator()(int64_t n) const {
    const hn::ScalableTag<float> f;
    const auto lanes = static_cast<int64_t>(hn::Lanes(f));
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) vectors<4>(f, i);
    for (; i + lanes <= n; i += lanes) vectors<1>(f, i);
    for (; i < n; ++i) vectors<1>(hn::CappedTag<float, 1>(), i);
  }
};

void ReduceInputs(Inputs inputs, DType dtype, void* out, DType out_dtype, bool accumulate, int64_t n) {
  const void* const absent = nullptr;
  if (inputs.empty()) inputs = {&absent, 1};
  visit(out, out_dtype, [&](auto* to) {
    visit(inputs[0], dtype, [&](const auto* first) {
      using In = std::remove_cvref_t<decltype(*first)>;
      using Out = std::remove_cvref_t<decltype(*to)>;
      if (accumulate) {
        Reduce<In, Out, true>{inputs, to}(n);
      } else {
        Reduce<In, Out, false>{inputs, to}(n);
      }
    });
  });
}

}  // namespace aliquot::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aliquot::kernels {

HWY_EXPORT(ReduceInputs);

void reduce(std::span<const void* const> inputs, DType dtype, void* out, DType out_dtype, bool accumulate,
            int64_t n) {
  choose_target();
  HWY_DYNAMIC_DISPATCH(ReduceInputs)(inputs, dtype, out, out_dtype, accumulate, n);
}

}  // namespace aliquot::kernels
#endif  // HWY_ONCE
