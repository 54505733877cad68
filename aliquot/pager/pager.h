// Parameters are paged by use: an operation that is about to read a released parameter gathers its unit
// first.
//
// [Note: paging]
// One at::RecordFunction callback (observer.cpp) sees every operation before it runs, in forward, backward
// and recomputation alike. For each argument whose storage is paged it pins the unit until the operation ends
// (composite operations call others, which pin again). A unit is gathered on its first pin and becomes
// releasable when its last pin goes; it is released when execution has moved on and
//   - its next use is farther than `max_reuse_distance` elements (unknown counts as the whole model), or
//   - more than `max_live` elements would be gathered (the least recently used goes first),
// and at the end of a step. Persistent units are never released. An operation that writes a parameter is an
// error at every stage: it throws when it touches the data, which stay as they were. An exception in the
// callback itself would be swallowed by PyTorch, so a failed gather leaves its cause as the storage's access
// error, and the operation throws that.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aliquot/layout/layout.h"
#include "aliquot/pager/faults.h"
#include "aliquot/pager/predictor.h"
#include "aliquot/pager/unit_store.h"

namespace aliquot {

/// In elements, as in DeepSpeed's stage3_* keys.
struct PagerOptions {
  int64_t max_live = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t persistence_threshold = 100'000;  ///< a unit persists if its largest segment is at most this
  int64_t model_persistence_threshold = INT64_MAX;  ///< cap on the elements of persistent units
};

struct PagerStats {
  int64_t gathers = 0;  ///< units gathered
  int64_t gathered_numel = 0;
  double gather_ms = 0;  ///< time that operations waited for gathers
};

/// Thread-safe: several threads may run operations on one model.
class Pager : public std::enable_shared_from_this<Pager> {
 public:
  /// `tensors[i]` is parameter i of the layout; dense, at offset 0 of a storage of its own. Their storages
  /// become paged; their bytes must already be in `store`. With collective gathers, persistent units are
  /// gathered here.
  static std::shared_ptr<Pager> create(std::shared_ptr<const Layout> layout, std::vector<at::Tensor> tensors,
                                       std::vector<std::string> names, std::unique_ptr<UnitStore> store,
                                       const PagerOptions& options, int rank);
  /// Gives every parameter ordinary memory of its own where its bytes can be had without other ranks;
  /// elsewhere its access error says that the engine is gone.
  ~Pager();

  UnitStore& store() { return *store_; }
  const Layout& layout() const { return *layout_; }
  const at::Tensor& tensor(int param) const { return tensors_[static_cast<size_t>(param)]; }
  const std::string& name(int param) const { return names_[static_cast<size_t>(param)]; }

  /// Gathers unit `u` if needed and keeps it until the matching `unpin`. Throws what the gather threw.
  void pin(int u, Mode mode);
  void unpin(int u);

  /// Releases every unit that is neither pinned nor persistent.
  void release_idle();
  /// Elements of units that are gathered now, persistent ones excluded.
  int64_t live_numel() const;
  bool is_persistent(int u) const { return persistent_[static_cast<size_t>(u)]; }

  /// Whether operations may write parameter `param` now (inside GatheredParameters); see `set_writable`.
  bool is_writable(int param) const { return writable_[static_cast<size_t>(param)] != nullptr; }
  /// Points `param` at private memory that operations may write; null ends that and points it back into its
  /// unit, which must be pinned meanwhile.
  void set_writable(int param, void* memory);

  /// An operation was about to write `param`: its access throws until `end_write_attempt`.
  void begin_write_attempt(int param, const char* operation);
  void end_write_attempt(int param);
  /// A gather for an operation failed: the access to `param` throws the cause.
  void poison_access(int param, const std::string& cause);

  PagerStats take_stats();

 private:
  enum class State { released, gathering, gathered };
  struct Page {
    State state = State::released;
    int pins = 0;
    int64_t last_use = 0;
  };

  Pager(std::shared_ptr<const Layout> layout, std::vector<at::Tensor> tensors, std::vector<std::string> names,
        std::unique_ptr<UnitStore> store, const PagerOptions& options, int rank);
  void choose_persistent();
  void watch_faults();
  void adopt_storages();
  void gather_locked(std::unique_lock<std::mutex>& lock, int u);
  void release_locked(int u);
  void make_room_locked(int u);
  void point_params(int u, const std::byte* base);
  std::string released_text(int param) const;
  Page& page(int u) { return pages_[static_cast<size_t>(u)]; }

  std::shared_ptr<const Layout> layout_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::string> names_;
  std::unique_ptr<UnitStore> store_;
  std::unique_ptr<faults::Watch> watch_;
  PagerOptions options_;
  int rank_;

  mutable std::mutex mutex_;
  std::condition_variable gathered_;
  std::vector<Page> pages_;
  std::vector<bool> persistent_;
  std::vector<int64_t> unit_numel_;
  std::vector<void*> writable_;
  Predictor predictor_;
  int64_t live_ = 0;
  int64_t clock_ = 0;
  int64_t total_numel_ = 0;
  PagerStats stats_;
};

}  // namespace aliquot
