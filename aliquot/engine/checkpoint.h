// Activation checkpointing (Chen et al. 2016): what a function computes on the way is not kept for backward,
// but computed again when backward needs it.
//
//   at::Tensor y = aliquot::checkpoint([&](const at::Tensor& x) { return block(x); }, x);
//
// [Note: checkpoint]
// In forward the function runs as it is and autograd records its graph, but of every tensor that the graph
// would save, only its shape and number are kept. The first of them that backward asks for runs the function
// again on the inputs, which are kept, with random numbers and autocast as they were; what it saves, by
// number, is what the graph gets, and it is stopped as soon as all is there. There is one graph and one
// backward: each parameter gets its gradient once, as without a checkpoint and bit by bit the same, if the
// function computes the same twice (that it saves the same shapes is checked).
//
// - Checkpoints nest; inside one that is run again, the inner one keeps nothing.
// - The graph may be kept (retain_graph); each backward computes again.
// - Where autograd is off (no_grad, inference) there is nothing to save: the function is just called.
// - What the function reads besides its inputs, parameters say, must be unchanged until backward, and what it
//   refers to must live till then: capture by value, or what outlives backward. The function itself and
//   arguments that are no tensors are copied.
// - It runs in one thread. Random numbers come from the default generators of the CPU and of the inputs'
// devices.
//   Threads share the CPU's, so threads that draw from it at the same time are repeatable in no case.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aliquot/error.h"

namespace aliquot {

/// The function saved other tensors when it ran again than it did in forward. Thrown by backward.
class RecomputeError : public Error {
 public:
  using Error::Error;
};

struct CheckpointOptions {
  std::string name{};              ///< what messages call it
  bool preserve_rng_state = true;  ///< false: only for functions that draw no random numbers
  /// false: the function always runs to its end, so that one that saves more tensors the second time is
  /// noticed too.
  bool early_stop = true;
};

namespace detail {

/// The forward of one checkpoint, from construction to destruction.
class CheckpointScope {
 public:
  CheckpointScope(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs,
                  std::function<void(std::span<const at::Tensor>)> run);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// An argument without its tensors, which go to the list of inputs and come back from one like it.
template <class T>
class Argument {
 public:
  Argument(T value, std::vector<at::Tensor>&) : value_(std::move(value)) {}
  const T& with(std::span<const at::Tensor>) const { return value_; }

 private:
  T value_;
};

template <>
class Argument<at::Tensor> {
 public:
  Argument(at::Tensor tensor, std::vector<at::Tensor>& inputs) : index_(inputs.size()) {
    inputs.push_back(std::move(tensor));
  }
  const at::Tensor& with(std::span<const at::Tensor> inputs) const { return inputs[index_]; }

 private:
  size_t index_;
};

template <>
class Argument<std::vector<at::Tensor>> {
 public:
  Argument(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& inputs)
      : first_(inputs.size()), count_(tensors.size()) {
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  }
  std::vector<at::Tensor> with(std::span<const at::Tensor> inputs) const {
    const auto own = inputs.subspan(first_, count_);
    return {own.begin(), own.end()};
  }

 private:
  size_t first_, count_;
};

template <>
class Argument<std::optional<at::Tensor>> {
 public:
  Argument(const std::optional<at::Tensor>& tensor, std::vector<at::Tensor>& inputs) {
    if (tensor) tensor_.emplace(*tensor, inputs);
  }
  std::optional<at::Tensor> with(std::span<const at::Tensor> inputs) const {
    return tensor_ ? std::optional(tensor_->with(inputs)) : std::nullopt;
  }

 private:
  std::optional<Argument<at::Tensor>> tensor_;
};

template <class Fn, class... Args>
class Call {
 public:
  /// Appends the tensors of `args` to `inputs`.
  Call(Fn fn, std::vector<at::Tensor>& inputs, const Args&... args)
      : fn_(std::move(fn)), arguments_(Argument<Args>(args, inputs)...) {}

  auto operator()(std::span<const at::Tensor> inputs) const {
    return std::apply([&](const auto&... a) { return std::invoke(fn_, a.with(inputs)...); }, arguments_);
  }

 private:
  Fn fn_;
  std::tuple<Argument<Args>...> arguments_;
};

/// A value, since a reference could be to one of the inputs.
template <class Fn, class... Args>
using Result = std::decay_t<std::invoke_result_t<const std::decay_t<Fn>&, const std::decay_t<Args>&...>>;

}  // namespace detail

/// fn(args…), checkpointed; any number and kinds of arguments and results. Tensors among the arguments, also
/// in a std::vector or a std::optional, are the inputs; they may not be changed in place until backward is
/// done (autograd then says so). `fn` must be callable as a constant with constant arguments.
template <class Fn, class... Args>
detail::Result<Fn, Args...> checkpoint(const CheckpointOptions& options, Fn&& fn, Args&&... args) {
  if (!c10::GradMode::is_enabled()) return std::invoke(std::as_const(fn), std::as_const(args)...);
  using Call = detail::Call<std::decay_t<Fn>, std::decay_t<Args>...>;
  std::vector<at::Tensor> inputs;
  const auto call = std::make_shared<const Call>(std::forward<Fn>(fn), inputs, args...);
  const detail::CheckpointScope scope(options, inputs,
                                      [call](std::span<const at::Tensor> again) { (void)(*call)(again); });
  return (*call)(inputs);
}

template <class Fn, class... Args>
detail::Result<Fn, Args...> checkpoint(Fn&& fn, Args&&... args) {
  return checkpoint(CheckpointOptions{}, std::forward<Fn>(fn), std::forward<Args>(args)...);
}

}  // namespace aliquot
