// What becomes of the tensors that operations save for backward, as the innermost scope of the thread says.
//
// Whenever an operation saves a tensor, LibTorch asks the process's autograd engine for "default hooks".
// Python's engine answers with those of torch.autograd.graph.saved_tensors_hooks; the one of C++ has none.
// The first scope puts an engine before it that asks the thread's scope, and passes on everything else.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

namespace aliquot::detail {

class SavedTensorScope {
 public:
  using Hooks = std::unique_ptr<torch::autograd::SavedVariableHooks>;

  /// While it lives, and no scope inside it does, `make` is called for every tensor that this thread saves;
  /// null leaves the tensor alone. Throws UsageError where saved-tensor hooks are switched off.
  explicit SavedTensorScope(std::function<Hooks()> make);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  Hooks make() const { return make_(); }

 private:
  std::function<Hooks()> make_;
  const SavedTensorScope* outer_;
};

}  // namespace aliquot::detail
