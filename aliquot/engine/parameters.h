// The user's parameters as the engine takes them over: checked, cast to their compute dtype, described for
// the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aliquot/config/config.h"
#include "aliquot/layout/layout.h"

namespace aliquot {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Overrides of the optimizer's defaults for the parameters listed; a parameter may be in one group only, and
/// those in none form the default group.
struct ParamGroup {
  std::vector<std::string> names;
  std::optional<double> lr, beta1, beta2, weight_decay;
};

/// Parameters in registration order; a tied parameter appears once, under its first name.
struct Parameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  std::vector<ParamSpec> specs;
  std::vector<std::pair<std::string, int>> aliases;  ///< further names of tied parameters
};

DType dtype_of(const at::Tensor& tensor);
at::ScalarType scalar_type(DType dtype);

/// Takes over `named`. Floating-point parameters are cast in place (the tensor stays the same object) to
/// `config.param_dtype()`, except those whose names contain one of `config.keep_fp32`. Each ends up dense at
/// offset 0 of a storage of its own; strides of dense tensors are kept. Nothing is changed if anything is
/// wrong. Throws UsageError naming the parameter: not on the CPU, no floating-point dtype, storage shared
/// with another parameter, part of another engine, a leftover .grad, an unnamed or doubly named one, not a
/// leaf.
Parameters adopt_parameters(std::span<const NamedTensor> named, std::span<const ParamGroup> groups,
                            const Config& config);

}  // namespace aliquot
