// Hooks on the parameters' AccumulateGrad nodes: a gradient is taken the moment autograd has made it.
//
// Node hooks rather than the tensor's post-accumulate hook, which is a single slot that a user may want: the
// node's run after it, so both work. Between backward and step `.grad` is undefined at every stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace aliquot {

class GradientHooks {
 public:
  /// `deliver(param, grad)` is called once per delivery: grad is dense, in the parameter's dtype and memory
  /// order, and owned by the callee. Calls are serialised. Frozen parameters get no hook.
  GradientHooks(std::vector<at::Tensor> tensors, std::vector<std::string> names,
                std::function<void(int, at::Tensor)> deliver);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Throws UsageError naming the first parameter whose storage or AccumulateGrad node is no longer the one
  /// that was taken over (module.to, set_data), or that a frozen-at-start parameter now requires a gradient,
  /// or whose .grad is defined.
  void check_parameters() const;

 private:
  struct Shared {
    std::mutex mutex;
    std::function<void(int, at::Tensor)> deliver;  // empty once the engine is gone
  };
  struct Entry;

  std::vector<Entry> entries_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace aliquot
