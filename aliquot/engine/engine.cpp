#include "aliquot/engine/engine.h"

#include <fmt/format.h>

#include <cmath>

#include "aliquot/engine/state.h"
#include "aliquot/error.h"

namespace aliquot {

Engine::Engine(std::vector<NamedTensor> parameters, const Config& config, Comm comm, EngineOptions options)
    : state_(std::make_unique<EngineState>(std::move(parameters), config, std::move(comm),
                                           std::move(options))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  state_->backward(loss, options);
}

at::Tensor Engine::scale(const at::Tensor& loss) const {
  return state_->scaler->scale() == 1.0 ? loss : loss.mul(state_->scaler->scale());
}

bool Engine::step() {
  return state_->step();
}

bool Engine::is_gradient_accumulation_boundary() const {
  return state_->boundary_override.value_or((state_->micro_steps + 1) % state_->accumulation_steps == 0);
}

void Engine::set_gradient_accumulation_boundary(std::optional<bool> boundary) {
  state_->boundary_override = boundary;
}

void Engine::zero_grad() {
  state_->drop_window();
}

void Engine::set_train_batch_size(int64_t train_batch_size) {
  EngineState& s = *state_;
  const int64_t micro = s.config.train_micro_batch_size_per_gpu * s.comm.size();
  if (micro <= 0 || train_batch_size <= 0 || train_batch_size % micro != 0) {
    throw UsageError(
        fmt::format("set_train_batch_size({}): must be a positive multiple of micro-batch {} × world {} = {}",
                    train_batch_size, s.config.train_micro_batch_size_per_gpu, s.comm.size(), micro));
  }
  if (s.micro_steps != 0 || s.losses != 0) {
    throw UsageError(
        fmt::format("set_train_batch_size({}): an accumulation window is under way; call it after a boundary",
                    train_batch_size));
  }
  s.config.train_batch_size = train_batch_size;
  s.config.gradient_accumulation_steps = train_batch_size / micro;
  s.accumulation_steps = train_batch_size / micro;
}

Engine::NoSync::NoSync(EngineState& state) : state_(state) {
  state_.no_sync = true;
}
Engine::NoSync::~NoSync() {
  state_.no_sync = false;
}

Engine::NoSync Engine::no_sync() {
  if (state_->placement.grads == Spread::sharded) {
    throw UsageError(
        fmt::format("no_sync(): at stage {} gradients are sharded in every micro-step, there is nothing to "
                    "defer; leave the scope out (accumulation is right without it)",
                    state_->config.zero.stage));
  }
  if (state_->no_sync) throw UsageError("no_sync(): already inside such a scope");
  return NoSync(*state_);
}

void Engine::train() {
  if (state_->options.set_training) state_->options.set_training(true);
}
void Engine::eval() {
  if (state_->options.set_training) state_->options.set_training(false);
}

double Engine::global_grad_norm() const {
  return state_->global_steps == 0 ? std::nan("") : state_->last.grad_norm;
}
bool Engine::was_step_applied() const {
  return state_->last.applied;
}
const StepReport& Engine::last_step() const {
  return state_->last;
}
int64_t Engine::global_steps() const {
  return state_->global_steps;
}
int64_t Engine::skipped_steps() const {
  return state_->skipped_steps;
}
int64_t Engine::global_samples() const {
  return state_->global_samples;
}
double Engine::loss_scale() const {
  return state_->scaler->scale();
}
int64_t Engine::gradient_accumulation_steps() const {
  return state_->accumulation_steps;
}
bool Engine::is_usable() const {
  return state_->usable;
}
void Engine::request_stop() {
  state_->stop_requested = true;
}

std::vector<double> Engine::lr() const {
  std::vector<double> lr;
  for (const GroupHyper& group : state_->hypers()) lr.push_back(group.lr);
  return lr;
}

const std::vector<std::string>& Engine::names() const {
  return state_->parameters.names;
}
const Meter& Engine::meter() const {
  return *state_->meter;
}
Meter& Engine::meter() {
  return *state_->meter;
}
const Config& Engine::config() const {
  return state_->config;
}
const Comm& Engine::comm() const {
  return state_->comm;
}
int64_t Engine::live_numel() const {
  return state_->pager->live_numel();
}

}  // namespace aliquot
