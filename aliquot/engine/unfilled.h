// Parameters of a model that is never whole anywhere.
#pragma once

#include <ATen/core/Tensor.h>

namespace aliquot {

/// A dense CPU tensor that has a shape and no memory. The engine that takes it over asks EngineOptions::fill
/// for its values, one parameter at a time.
at::Tensor unfilled(at::IntArrayRef shape, at::ScalarType type = at::kFloat);
bool is_unfilled(const at::Tensor& tensor);

}  // namespace aliquot
