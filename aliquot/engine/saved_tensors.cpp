#include "aliquot/engine/saved_tensors.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

#include "aliquot/error.h"

namespace aliquot::detail {
namespace {

namespace autograd = torch::autograd;

thread_local const SavedTensorScope* current = nullptr;
thread_local bool* probe = nullptr;  // set by reaches_scopes

/// Runs nothing itself: `before` has the worker threads and does all the work.
class ScopedEngine final : public autograd::Engine {
 public:
  /// Alive for good: threads may ask it while the process ends.
  static ScopedEngine& instance() {
    static auto* const engine = new ScopedEngine;
    return *engine;
  }

  void set_before(autograd::Engine& engine) { before_ = &engine; }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (probe != nullptr) {
      *probe = true;
      return nullptr;
    }
    if (current != nullptr) return current->make();
    return before_.load()->get_default_saved_variable_hooks();
  }

  autograd::variable_list execute(const autograd::edge_list& roots, const autograd::variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return before_.load()->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task, c10::intrusive_ptr<autograd::Node> root,
      autograd::InputBuffer&& inputs) override {
    return before_.load()->execute_with_graph_task(task, std::move(root), std::move(inputs));
  }
  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_.load()->make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<autograd::GraphTask>& task,
                           const c10::intrusive_ptr<autograd::Node>& node, std::exception& e) override {
    before_.load()->thread_on_exception(task, node, e);
  }
  void thread_init(int device, const std::shared_ptr<autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    before_.load()->thread_init(device, queue, should_increment);
  }

 private:
  ScopedEngine() = default;
  std::atomic<autograd::Engine*> before_{nullptr};
};

// Whether the process's engine is ours, or one that passes its questions on to ours (a second copy of this
// library has such a one): to put ours before that would close a circle. Python's, loaded later, is neither.
bool reaches_scopes(autograd::Engine& engine) {
  if (&engine == &ScopedEngine::instance()) return true;
  bool asked = false;
  probe = &asked;
  engine.get_default_saved_variable_hooks();
  probe = nullptr;
  return asked;
}

void put_scopes_first() {
  if (&autograd::Engine::get_default_engine() == &ScopedEngine::instance()) return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  autograd::Engine& engine = autograd::Engine::get_default_engine();
  if (reaches_scopes(engine)) return;
  ScopedEngine::instance().set_before(engine);
  autograd::set_default_engine_stub([]() -> autograd::Engine& { return ScopedEngine::instance(); });
}

}  // namespace

SavedTensorScope::SavedTensorScope(std::function<Hooks()> make) : make_(std::move(make)), outer_(current) {
  if (const auto& why = at::SavedTensorDefaultHooks::get_disabled_error_message()) {
    throw UsageError("a checkpoint works by saved-tensor hooks, which are switched off here: " + *why);
  }
  put_scopes_first();
  current = this;
}

SavedTensorScope::~SavedTensorScope() {
  current = outer_;
}

}  // namespace aliquot::detail
