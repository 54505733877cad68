// The SIMD target in use, between the kernels' files; the public side is in kernels.h.
#pragma once

namespace aliquot::kernels {

/// Before the first kernel runs: obeys ALIQUOT_SIMD, else takes the best target of the machine.
void choose_target();

}  // namespace aliquot::kernels
