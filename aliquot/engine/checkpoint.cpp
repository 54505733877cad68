#include "aliquot/engine/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "aliquot/engine/saved_tensors.h"
#include "aliquot/log.h"

namespace aliquot::detail {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

// ---- what a function's results depend on besides its inputs ----

/// The default generators of the CPU and of accelerators that the inputs are on.
class RandomState {
 public:
  static RandomState now(std::span<const at::Device> devices) {
    RandomState out;
    for (const at::Device device : devices) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      out.states_.emplace_back(generator, generator.get_state());
    }
    return out;
  }

  void restore() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

  bool operator==(const RandomState& other) const {
    return std::ranges::equal(states_, other.states_, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.equal(b.second);
    });
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Autocast of the CPU and of the inputs' devices. Casts that it has cached belong to the first graph.
class Autocast {
 public:
  static Autocast now(std::span<const at::Device> devices) {
    Autocast out;
    out.cache_ = at::autocast::is_autocast_cache_enabled();
    for (const at::Device device : devices) {
      out.settings_.push_back({device.type(), at::autocast::is_autocast_enabled(device.type()),
                               at::autocast::get_autocast_dtype(device.type())});
    }
    return out;
  }

  void restore() const {
    at::autocast::set_autocast_cache_enabled(cache_);
    for (const Setting& s : settings_) {
      at::autocast::set_autocast_enabled(s.device, s.enabled);
      at::autocast::set_autocast_dtype(s.device, s.dtype);
    }
  }

  Autocast without_cache() const {
    Autocast out = *this;
    out.cache_ = false;
    return out;
  }

 private:
  struct Setting {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<Setting> settings_;
  bool cache_ = true;
};

std::vector<at::Device> devices_of(std::span<const at::Tensor> inputs) {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Tensor& t : inputs) {
    if (!t.defined() || !at::isAccelerator(t.device().type())) continue;
    if (std::ranges::find(devices, t.device()) == devices.end()) devices.push_back(t.device());
  }
  return devices;
}

template <class State>
class Restoring {
 public:
  explicit Restoring(State state) : state_(std::move(state)) {}
  ~Restoring() { state_.restore(); }
  Restoring(const Restoring&) = delete;
  Restoring& operator=(const Restoring&) = delete;

 private:
  State state_;
};

// ---- saved tensors ----

struct Shape {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;

  static Shape of(const at::Tensor& t) {
    return {t.is_nested() ? std::vector<int64_t>() : t.sizes().vec(), t.scalar_type(), t.device()};
  }
  bool operator==(const Shape&) const = default;
  std::string text() const {
    return fmt::format("[{}] {} on {}", fmt::join(sizes, ", "), c10::toString(dtype), device.str());
  }
};

/// A tensor that forward's graph would have saved.
struct Forgotten {
  Forgotten(Shape s, uint32_t v) : shape(std::move(s)), version(v) {}

  Shape shape;
  uint32_t version;
  std::atomic<bool> wanted = true;  ///< false once the graph's node has let go of it
};

/// The same tensor, computed again.
struct Again {
  at::Tensor tensor;
  uint32_t version = 0;
};

/// Ends a function that has given all that is wanted, or went another way than in forward. An std::exception,
/// since autograd lets no other pass where the function runs a backward of its own.
struct Stop final : std::exception {
  const char* what() const noexcept override { return "recomputation of a checkpoint is complete"; }
};

}  // namespace

/// Kept by the hooks of all tensors that it forgot, and dies with the last.
class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  using Run = std::function<void(std::span<const at::Tensor>)>;

  CheckpointFrame(const CheckpointOptions& options, std::span<const at::Tensor> inputs, Run run)
      : options_(options),
        run_(std::move(run)),
        devices_(devices_of(inputs)),
        autocast_(Autocast::now(devices_)) {
    if (options_.preserve_rng_state) random_ = RandomState::now(devices_);
    inputs_.reserve(inputs.size());
    // Inside another checkpoint that one forgets them, and gives them back when it runs again.
    for (const at::Tensor& t : inputs) inputs_.emplace_back(t, /*is_output=*/false);
  }

  std::unique_ptr<SavedVariableHooks> forgetting_hooks();

  void end_forward() {
    forward_ended_ = true;
    // A generator that was left alone then is left alone in backward: other threads may be drawing.
    if (random_ && *random_ == RandomState::now(devices_)) random_.reset();
  }

  Forgotten& forget(const at::Tensor& tensor) {
    return forgotten_.emplace_back(Shape::of(tensor), static_cast<uint32_t>(tensor._version()));
  }

  size_t forgotten() const { return forgotten_.size(); }

  at::Tensor remember(size_t index);

 private:
  class Recomputation;

  void recompute(std::vector<Again>& slots, std::optional<size_t> only);
  std::vector<at::Tensor> inputs_again() const;
  std::string title() const {
    return options_.name.empty() ? "checkpoint" : fmt::format("checkpoint {}", options_.name);
  }

  const CheckpointOptions options_;
  const Run run_;
  const std::vector<at::Device> devices_;
  const Autocast autocast_;
  std::optional<RandomState> random_;  // none if nothing is to be restored
  std::vector<SavedVariable> inputs_;
  std::deque<Forgotten> forgotten_;
  std::atomic<bool> forward_ended_ = false;

  std::mutex mutex_;
  std::map<int, std::vector<Again>> again_;  // by graph task
};

namespace {

/// Stands in the graph for a tensor that forward saved.
class Forgetting final : public SavedVariableHooks {
 public:
  explicit Forgetting(std::shared_ptr<CheckpointFrame> frame) : frame_(std::move(frame)) {}
  ~Forgetting() override {
    if (forgotten_ != nullptr) forgotten_->wanted = false;
  }
  Forgetting(const Forgetting&) = delete;
  Forgetting& operator=(const Forgetting&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override {
    index_ = frame_->forgotten();
    forgotten_ = &frame_->forget(tensor);
  }
  at::Tensor call_unpack_hook() override { return frame_->remember(index_); }

 private:
  std::shared_ptr<CheckpointFrame> frame_;
  Forgotten* forgotten_ = nullptr;
  size_t index_ = 0;
};

}  // namespace

std::unique_ptr<SavedVariableHooks> CheckpointFrame::forgetting_hooks() {
  return std::make_unique<Forgetting>(shared_from_this());
}

/// One run of the function in backward: notes what its graph saves, by number.
class CheckpointFrame::Recomputation {
 public:
  Recomputation(const CheckpointFrame& frame, std::vector<Again>& slots, std::optional<size_t> only)
      : frame_(frame),
        slots_(slots),
        only_(only),
        // A backward inside the function, before forward has ended, knows of what was saved so far.
        stops_(frame.options_.early_stop || !frame.forward_ended_),
        expected_(frame.forgotten_.size()) {
    slots_.resize(expected_);
  }

  SavedTensorScope::Hooks hooks() { return std::make_unique<Keeping>(*this); }

  /// What differs from forward; empty if nothing does.
  std::string problem() const {
    if (!problem_.empty() || count_ == expected_) return problem_;
    return fmt::format("saved {} tensors, {} in forward", count_, expected_);
  }

 private:
  /// The graph of the second run keeps its tensors as graphs do: the function may run a backward of its own.
  class Keeping final : public SavedVariableHooks {
   public:
    explicit Keeping(Recomputation& run) : run_(run) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      kept_ = tensor.detach();  // not to own the node that owns this
      run_.note(kept_);
    }
    at::Tensor call_unpack_hook() override { return kept_; }

   private:
    Recomputation& run_;  // read while it packs, which is while the function runs
    at::Tensor kept_;
  };

  void note(const at::Tensor& tensor) {
    if (!problem_.empty()) throw Stop();
    const size_t index = count_++;
    if (index >= expected_) {
      if (stops_) throw Stop();
      return;
    }
    const Forgotten& forgotten = frame_.forgotten_[index];
    const auto version = static_cast<uint32_t>(tensor._version());
    if (const Shape shape = Shape::of(tensor); shape != forgotten.shape) {
      problem_ =
          fmt::format("saved tensor {} is {}, {} in forward", index, shape.text(), forgotten.shape.text());
    } else if (version != forgotten.version) {
      problem_ = fmt::format("saved tensor {}, {}, is at version {}, {} in forward: it was changed in place",
                             index, shape.text(), version, forgotten.version);
    }
    if (!problem_.empty()) throw Stop();
    if (forgotten.wanted && (!only_ || *only_ == index)) slots_[index] = {tensor, version};
    if (stops_ && count_ == expected_) throw Stop();
  }

  const CheckpointFrame& frame_;
  std::vector<Again>& slots_;
  const std::optional<size_t> only_;
  const bool stops_;
  const size_t expected_;
  size_t count_ = 0;
  std::string problem_;
};

std::vector<at::Tensor> CheckpointFrame::inputs_again() const {
  std::vector<at::Tensor> out;
  for (const SavedVariable& saved : inputs_) {
    const at::Tensor input = saved.unpack();
    out.push_back(input.defined() ? input.detach().set_requires_grad(input.requires_grad()) : input);
  }
  return out;
}

void CheckpointFrame::recompute(std::vector<Again>& slots, std::optional<size_t> only) {
  const std::vector<at::Tensor> inputs = inputs_again();
  Recomputation run(*this, slots, only);
  const c10::AutoGradMode grad(true);
  const Restoring autocast_after(Autocast::now(devices_));
  autocast_.without_cache().restore();
  std::optional<Restoring<RandomState>> random_after;
  if (random_) {
    random_after.emplace(RandomState::now(devices_));
    random_->restore();
  }
  try {
    const SavedTensorScope scope([&] { return run.hooks(); });
    run_(inputs);
  } catch (const Stop&) {
  }
  if (const std::string problem = run.problem(); !problem.empty()) {
    throw RecomputeError(
        fmt::format("{}: computed again for backward, {}; the function must do the same both "
                    "times, on parameters and buffers that nothing has changed meanwhile",
                    title(), problem));
  }
}

at::Tensor CheckpointFrame::remember(size_t index) {
  const std::lock_guard lock(mutex_);
  const int task = torch::autograd::get_current_graph_task_id();  // −1: somebody looks at a node from outside
  const auto [entry, is_new] = again_.try_emplace(task);
  std::vector<Again>& slots = entry->second;
  Again found;
  try {
    if (is_new) {
      recompute(slots, std::nullopt);
    } else if (index >= slots.size() || !slots[index].tensor.defined()) {
      recompute(slots, index);  // asked for twice
    }
    found = std::exchange(slots[index], {});
  } catch (...) {
    again_.erase(entry);
    throw;
  }
  if (task == -1) {
    again_.erase(entry);
  } else if (is_new) {
    // What this backward does not ask for goes with it, even where the graph stays.
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
      if (const auto frame = weak.lock()) {
        const std::lock_guard guard(frame->mutex_);
        frame->again_.erase(task);
      }
    });
  }
  check(found.tensor.defined(), "a recomputed tensor is missing");
  if (found.tensor._version() != found.version) {
    throw RecomputeError(
        fmt::format("{}: saved tensor {}, {}, is changed in place after an operation has saved it "
                    "for backward",
                    title(), index, Shape::of(found.tensor).text()));
  }
  return found.tensor;
}

// ---- forward ----

struct CheckpointScope::Parts {
  std::shared_ptr<CheckpointFrame> frame;
  SavedTensorScope scope;
};

CheckpointScope::CheckpointScope(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs,
                                 CheckpointFrame::Run run) {
  const auto frame = std::make_shared<CheckpointFrame>(options, inputs, std::move(run));
  parts_.reset(
      new Parts{frame, SavedTensorScope([frame = frame.get()] { return frame->forgetting_hooks(); })});
}

CheckpointScope::~CheckpointScope() {
  try {
    parts_->frame->end_forward();
  } catch (const std::exception& e) {
    log::warn("checkpoint: {}", e.what());  // backward restores the generators without need
  }
}

}  // namespace aliquot::detail
