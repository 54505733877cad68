#include "aliquot/engine/hooks.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "aliquot/error.h"
#include "aliquot/pager/storage.h"

namespace aliquot {

struct GradientHooks::Entry {
  // An intrusive or a shared pointer, depending on torch's version.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  at::Tensor tensor;
  std::string name;
  const void* storage = nullptr;
  bool trainable = false;
  Node node;  // kept alive, as DDP does: the hook lives in it
  uintptr_t hook = 0;
};

namespace {

// Takes what AccumulateGrad left in .grad, as dense memory in the parameter's own order.
at::Tensor take_grad(const at::Tensor& tensor) {
  at::Tensor grad = std::move(tensor.mutable_grad());
  tensor.mutable_grad().reset();
  if (!grad.defined()) return grad;
  const c10::AutoGradMode no_grad(false);
  if (grad.is_sparse()) grad = grad.to_dense();
  if (grad.strides() != tensor.strides() || grad.scalar_type() != tensor.scalar_type()) {
    at::Tensor ordered = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    ordered.copy_(grad);
    grad = std::move(ordered);
  }
  return grad;
}

}  // namespace

GradientHooks::GradientHooks(std::vector<at::Tensor> tensors, std::vector<std::string> names,
                             std::function<void(int, at::Tensor)> deliver)
    : shared_(std::make_shared<Shared>()) {
  shared_->deliver = std::move(deliver);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Entry entry{.tensor = tensors[i],
                .name = names[i],
                .storage = storage::of(tensors[i]),
                .trainable = tensors[i].requires_grad(),
                .node = {}};
    if (entry.trainable) {
      entry.node = torch::autograd::impl::grad_accumulator(tensors[i]);
      auto hook = std::make_unique<torch::autograd::utils::LambdaPostHook>(
          // The tensor is not captured: its node would keep it, and it its node, alive for ever.
          [shared = shared_, param = static_cast<int>(i),
           weak = c10::weak_intrusive_ptr<c10::TensorImpl>(tensors[i].getIntrusivePtr())](
              const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
            const std::lock_guard lock(shared->mutex);
            if (!shared->deliver) return outputs;
            if (auto impl = weak.lock()) {
              at::Tensor grad = take_grad(at::Tensor(std::move(impl)));
              if (grad.defined()) shared->deliver(param, std::move(grad));
            }
            return outputs;
          });
      entry.hook = entry.node->add_post_hook(std::move(hook));
    }
    entries_.push_back(std::move(entry));
  }
}

GradientHooks::~GradientHooks() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->deliver = nullptr;
  }
  for (const Entry& entry : entries_) {
    if (entry.node) entry.node->del_post_hook(entry.hook);
  }
}

void GradientHooks::check_parameters() const {
  for (const Entry& entry : entries_) {
    const bool moved = storage::of(entry.tensor) != entry.storage;
    const bool rehooked = entry.trainable && entry.tensor.requires_grad() &&
                          torch::autograd::impl::try_get_grad_accumulator(entry.tensor) != entry.node;
    if (moved || rehooked) {
      throw UsageError(fmt::format(
          "parameter {} was replaced behind the engine's back (module.to, set_data or .data = …): "
          "change dtype or device before the engine is built, values inside GatheredParameters",
          entry.name));
    }
    if (!entry.trainable && entry.tensor.requires_grad()) {
      throw UsageError(fmt::format(
          "parameter {} was frozen when the engine was built and requires a gradient now: build the "
          "engine anew to train it",
          entry.name));
    }
    if (entry.tensor.grad().defined()) {
      throw UsageError(
          fmt::format("parameter {} has a .grad that the engine did not take (set by hand?): use "
                      "engine.set_full_grad, or gradient_clipping instead of clip_grad_norm_",
                      entry.name));
    }
  }
}

}  // namespace aliquot
