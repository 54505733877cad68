#include "aliquot/pager/observer.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/graph_task.h>

#include <exception>
#include <memory>
#include <mutex>

#include "aliquot/log.h"
#include "aliquot/pager/op_facts.h"
#include "aliquot/pager/pager.h"
#include "aliquot/pager/storage.h"

namespace aliquot::observer {
namespace {

Mode current_mode() {
  if (torch::autograd::get_current_graph_task_id() != -1) return Mode::backward;
  return c10::GradMode::is_enabled() ? Mode::forward : Mode::no_grad;
}

/// What one operation holds while it runs.
struct Held final : at::ObserverContext {
  struct Pin {
    std::shared_ptr<Pager> pager;
    int unit;
  };
  struct Attempt {
    std::shared_ptr<Pager> pager;
    int param;
  };
  c10::SmallVector<Pin, 4> pins;
  c10::SmallVector<Attempt, 1> attempts;
};

class Visitor {
 public:
  explicit Visitor(const at::RecordFunction& fn) : fn_(fn) {}

  void argument(const c10::IValue& value, size_t index) {
    if (value.isTensor()) {
      tensor(value.toTensor(), index);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) tensor(element.toTensor(), index);
      }
    }
  }

  std::unique_ptr<Held> take() { return std::move(held_); }

 private:
  void tensor(const at::Tensor& tensor, size_t index) {
    if (!tensor.defined()) return;
    c10::StorageImpl* storage = storage::of(tensor);
    if (storage == nullptr) return;
    const StorageTag* tag = storage::tag_of(*storage);
    if (tag == nullptr) return;
    if (facts_ == nullptr) facts_ = &facts_of(fn_);
    const Access access = facts_->argument(index);
    if (access == Access::none) return;
    std::shared_ptr<Pager> pager = tag->pager.lock();
    if (!pager) return;
    if (!held_) held_ = std::make_unique<Held>();
    if (access == Access::write && !pager->is_writable(tag->param)) {
      pager->begin_write_attempt(tag->param, fn_.name());
      held_->attempts.push_back({std::move(pager), tag->param});
      return;
    }
    pin(std::move(pager), tag->param);
  }

  void pin(std::shared_ptr<Pager> pager, int param) {
    const int unit = pager->layout().segment_of(param).unit;
    try {
      pager->pin(unit, current_mode());
      held_->pins.push_back({std::move(pager), unit});
    } catch (const std::exception& e) {
      pager->poison_access(param, e.what());
    }
  }

  const at::RecordFunction& fn_;
  const OpFacts* facts_ = nullptr;
  std::unique_ptr<Held> held_;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  Visitor visitor(fn);
  const auto inputs = fn.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) visitor.argument(inputs[i], i);
  return visitor.take();
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  auto* held = static_cast<Held*>(context);
  for (const Held::Attempt& a : held->attempts) a.pager->end_write_attempt(a.param);
  for (const Held::Pin& p : held->pins) p.pager->unpin(p.unit);
}

std::mutex mutex;
int pagers = 0;
at::CallbackHandle handle = 0;

}  // namespace

void attach() {
  const std::lock_guard lock(mutex);
  if (pagers++ > 0) return;
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

void detach() {
  const std::lock_guard lock(mutex);
  if (--pagers == 0) at::removeCallback(handle);
}

}  // namespace aliquot::observer
