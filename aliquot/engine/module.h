// From a torch::nn::Module to what the engine takes. Apart from engine.h, since torch's module header is dear
// to compile.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "aliquot/engine/engine.h"

namespace aliquot {

/// Parameters by name, in registration order. A parameter registered under two names is listed under both.
inline std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module.named_parameters()) parameters.push_back({item.key(), item.value()});
  return parameters;
}

/// Its buffers by name, for EngineOptions::buffers.
inline std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : module.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

/// Casts the module's floating-point buffers to `config.buffer_dtype`; without one they keep their dtype, as
/// integers always do.
inline void cast_buffers(torch::nn::Module& module, const Config& config) {
  if (!config.buffer_dtype) return;
  for (at::Tensor& buffer : module.buffers()) {
    if (buffer.is_floating_point()) buffer.set_data(buffer.to(scalar_type(*config.buffer_dtype)));
  }
}

/// Makes engine.train() and engine.eval() those of the module, which must outlive the engine.
inline std::function<void(bool)> training_switch(torch::nn::Module& module) {
  return [&module](bool train) { module.train(train); };
}

}  // namespace aliquot
