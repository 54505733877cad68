// The machine's matmul limit: what the progress line's percentage is of.
#pragma once

#include "aliquot/config/config.h"

namespace aliquot {

/// Floating-point operations per second of one rank's threads on large square matrices of `dtype`: the best
/// of a few tries, some tens of milliseconds.
double matmul_flops_per_s(DType dtype);

}  // namespace aliquot
