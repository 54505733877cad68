// The element types of a DType, and the step from a DType known at run time to a type known at compile time.
#pragma once

#include <cstdint>

#include "aliquot/config/config.h"

namespace aliquot::kernels {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

/// Calls f with `p` as const float*, const BFloat16* or const Float16*.
template <class F>
void visit(const void* p, DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp32:
      return f(static_cast<const float*>(p));
    case DType::bf16:
      return f(static_cast<const BFloat16*>(p));
    case DType::fp16:
      return f(static_cast<const Float16*>(p));
  }
}
template <class F>
void visit(void* p, DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp32:
      return f(static_cast<float*>(p));
    case DType::bf16:
      return f(static_cast<BFloat16*>(p));
    case DType::fp16:
      return f(static_cast<Float16*>(p));
  }
}

}  // namespace aliquot::kernels
