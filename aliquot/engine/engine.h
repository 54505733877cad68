// The engine: `engine.backward(loss); engine.step();` instead of `loss.backward(); optimizer.step();
// optimizer.zero_grad();`.
//
//   auto model = …;                                     // any torch::nn::Module, unchanged
//   aliquot::Engine engine(parameters_of(*model), config, comm);
//   for (auto& batch : batches) {
//     engine.backward(model->forward(batch));
//     engine.step();                                    // acts at accumulation boundaries
//   }
//
// [Note: engine]
// From construction to destruction the engine owns the parameters' memory. They are cast to the configured
// precision, equal on all ranks (rank 0's values are broadcast), and read by operations as ever; nothing but
// `step()` and GatheredParameters may write them. Between backward and step `.grad` is undefined. A call that
// throws UsageError leaves the engine as it was; after a CommError it cannot go on (`is_usable()`). Calls
// marked *collective* must be made by all ranks alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/config/config.h"
#include "aliquot/engine/parameters.h"
#include "aliquot/memory/meter.h"

namespace aliquot {

struct EngineState;

struct EngineOptions {
  std::vector<ParamGroup> groups;  ///< beyond the default group of the config's optimizer
  std::vector<NamedTensor>
      buffers;  ///< rank 0's are copied to the other ranks at every boundary; see buffers_of (module.h)
  std::function<void(bool train)>
      set_training;  ///< called by train() and eval(); see parameters_of (module.h)
  std::function<void(const std::string& name, at::Tensor& value)>
      fill;  ///< writes the initial value of a parameter that has no memory (unfilled, parameters.h), an fp32
             ///< tensor of its shape; called on rank 0, one parameter at a time
  int64_t nonfinite_loss_limit =
      10;              ///< boundaries in a row with a NaN or infinite loss before step() throws; 0: never
  bool quiet = false;  ///< no messages on standard error
};

struct BackwardOptions {
  bool retain_graph = false;
  bool scale_wrt_gas =
      true;  ///< false: not divided by the accumulation steps; must be the same for a whole window
};

/// What one call of step() at a boundary did and cost. Times in milliseconds, bytes as sent by this rank.
struct StepReport {
  int64_t step = 0;  ///< global steps so far, this one included
  bool applied = false;
  std::string skip_reason;  ///< empty if applied
  double loss = 0;          ///< mean over ranks and micro-steps
  double grad_norm = 0;     ///< unscaled, before clipping
  double clip_coefficient = 1;
  double lr = 0;          ///< of the default group, as used
  double loss_scale = 1;  ///< as used in backward
  bool stop = false;      ///< a rank asked to stop (request_stop)
  double backward_ms = 0, gather_ms = 0, reduce_ms = 0, reduce_wait_ms = 0, norm_ms = 0, update_ms = 0,
         publish_ms = 0;
  int64_t reduce_bytes = 0, gathered_numel = 0;
};

class Engine {
 public:
  /// Collective. Throws ConfigError, UsageError (a parameter that cannot be trained, by name), CommError,
  /// std::bad_alloc.
  Engine(std::vector<NamedTensor> parameters, const Config& config, Comm comm = {},
         EngineOptions options = {});
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // ---- training

  /// Runs autograd on loss · loss scale. `loss` is a scalar. Collective at stages 2 and 3. If it throws, the
  /// accumulation window is lost: the next call drops it and says so.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});
  /// loss · loss scale, for a `loss.backward()` of the user's own (which is supported too).
  at::Tensor scale(const at::Tensor& loss) const;
  /// Counts a micro-step. At a boundary: averages, checks, clips, updates, publishes; collective. Returns
  /// whether the update was applied (false off the boundary, and for a skipped step).
  bool step();
  /// Whether the next step() acts.
  bool is_gradient_accumulation_boundary() const;
  /// Overrides the count, until called again with nullopt.
  void set_gradient_accumulation_boundary(std::optional<bool> boundary);
  /// Drops the window: gradients so far are forgotten.
  void zero_grad();
  /// Changes the accumulation steps to batch / (micro-batch · world); throws UsageError if that is no whole
  /// number, or in the middle of a window.
  void set_train_batch_size(int64_t train_batch_size);

  /// While it lives, gradients only accumulate and step() is an error. Stages 0 and 1; UsageError at 2 and 3,
  /// whose gradients are sharded in every micro-step.
  class NoSync {
   public:
    explicit NoSync(EngineState& state);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    EngineState& state_;
  };
  NoSync no_sync();

  void train();
  void eval();

  // ---- what happened

  double global_grad_norm() const;  ///< of the last boundary: unscaled, before clipping; NaN before the first
  bool was_step_applied() const;
  const StepReport& last_step() const;
  int64_t global_steps() const;  ///< boundaries, skipped ones included
  int64_t skipped_steps() const;
  int64_t global_samples() const;
  double loss_scale() const;
  std::vector<double> lr() const;  ///< by group, that the next step will use
  int64_t gradient_accumulation_steps() const;
  bool is_usable() const;
  /// Asks for a stop; agreed with the next boundary, so that all ranks stop after the same step. Signal-safe.
  void request_stop();

  // ---- states, by parameter name; fp32, in the parameter's shape. Frozen parameters have no gradient and no
  // state (nullopt).

  /// Collective where the state is sharded.
  at::Tensor full_param(std::string_view name);
  std::optional<at::Tensor> full_grad(
      std::string_view name);  ///< averaged and unscaled; between backward and step
  std::optional<at::Tensor> full_optimizer_state(std::string_view name, std::string_view state);
  void set_full_param(std::string_view name, const at::Tensor& value);
  void set_full_grad(std::string_view name, const at::Tensor& value);
  void set_full_optimizer_state(std::string_view name, std::string_view state, const at::Tensor& value);
  /// This rank's elements alone, flat, in memory order; not collective.
  at::Tensor local_param(std::string_view name);
  std::optional<at::Tensor> local_grad(std::string_view name);
  std::optional<at::Tensor> local_optimizer_state(std::string_view name, std::string_view state);
  /// Names of the optimizer's states, "exp_avg" and so on.
  std::vector<std::string> optimizer_state_names() const;
  /// Updates that this parameter took part in.
  int64_t param_step(std::string_view name) const;

  /// Names in registration order, without aliases of tied parameters.
  const std::vector<std::string>& names() const;
  const Meter& meter() const;
  Meter& meter();
  const Config& config() const;
  const Comm& comm() const;
  /// Parameters of paged units that are gathered now, in elements, persistent ones excluded (stage 3).
  int64_t live_numel() const;

  EngineState& state() { return *state_; }

 private:
  std::unique_ptr<EngineState> state_;
};

}  // namespace aliquot
