#include "aliquot/pager/pager.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/pager/observer.h"
#include "aliquot/pager/storage.h"

namespace aliquot {
namespace {

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *storage::of(tensor);
}

size_t bytes_of(const at::Tensor& tensor) {
  return storage_of(tensor).nbytes();
}

}  // namespace

std::shared_ptr<Pager> Pager::create(std::shared_ptr<const Layout> layout, std::vector<at::Tensor> tensors,
                                     std::vector<std::string> names, std::unique_ptr<UnitStore> store,
                                     const PagerOptions& options, int rank) {
  std::shared_ptr<Pager> pager(
      new Pager(std::move(layout), std::move(tensors), std::move(names), std::move(store), options, rank));
  pager->adopt_storages();
  pager->watch_faults();
  observer::attach();
  return pager;
}

Pager::Pager(std::shared_ptr<const Layout> layout, std::vector<at::Tensor> tensors,
             std::vector<std::string> names, std::unique_ptr<UnitStore> store, const PagerOptions& options,
             int rank)
    : layout_(std::move(layout)),
      tensors_(std::move(tensors)),
      names_(std::move(names)),
      store_(std::move(store)),
      options_(options),
      rank_(rank),
      pages_(layout_->units().size()),
      persistent_(layout_->units().size(), false),
      writable_(tensors_.size(), nullptr),
      predictor_(static_cast<int>(layout_->units().size())) {
  for (const Unit& unit : layout_->units()) unit_numel_.push_back(unit.numel);
  for (const int64_t numel : unit_numel_) total_numel_ += numel;
  choose_persistent();
}

Pager::~Pager() {
  observer::detach();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    c10::StorageImpl& s = storage_of(tensors_[i]);
    if (storage::tag_of(s) == nullptr) continue;  // replaced behind our back
    const SegmentId id = layout_->segment_of(static_cast<int>(i));
    const bool local = !store_->gathers_collectively() || page(id.unit).state == State::gathered;
    try {
      if (!store_->outlives_engine()) throw UsageError("its bytes were on NVMe");
      if (!local) throw UsageError("its bytes lie on several ranks");
      const std::byte* base = store_->gather(id.unit);
      const int64_t offset = layout_->segment(id).offset * size_of(layout_->unit(id.unit).dtype);
      storage::hand_back(s, base + offset, bytes_of(tensors_[i]));
    } catch (const std::exception& e) {
      storage::point_nowhere(s, fmt::format("parameter {}: its engine is gone ({})", names_[i], e.what()));
    }
  }
}

void Pager::choose_persistent() {
  int64_t kept = 0;
  for (size_t u = 0; u < persistent_.size(); ++u) {
    const Unit& unit = layout_->unit(static_cast<int>(u));
    int64_t largest = 0;
    for (const Segment& s : unit.segments) largest = std::max(largest, s.numel);
    // An empty segment needs no page.
    if (store_->whole(static_cast<int>(u)) != nullptr || largest == 0) {
      persistent_[u] = true;
      continue;
    }
    if (largest > options_.persistence_threshold) continue;
    if (kept > options_.model_persistence_threshold - unit.numel) continue;
    kept += unit.numel;
    persistent_[u] = true;
  }
}

void Pager::adopt_storages() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    storage::adopt(storage_of(tensors_[i]), {weak_from_this(), static_cast<int>(i)});
  }
  for (int u = 0; u < static_cast<int>(pages_.size()); ++u) {
    if (persistent_[static_cast<size_t>(u)]) {
      point_params(u, store_->gather(u));
      page(u).state = State::gathered;
    } else {
      point_params(u, nullptr);
    }
  }
}

void Pager::watch_faults() {
  std::vector<faults::Region> regions;
  for (int u = 0; u < static_cast<int>(pages_.size()); ++u) {
    const std::byte* base = store_->mapped(u);
    if (base == nullptr) continue;
    const Unit& unit = layout_->unit(u);
    for (const Segment& segment : unit.segments) {
      regions.push_back({base + segment.offset * size_of(unit.dtype), segment.numel * size_of(unit.dtype),
                         fmt::format("parameter {} (unit {}, rank {})",
                                     names_[static_cast<size_t>(segment.param)], u, rank_)});
    }
  }
  if (!regions.empty()) watch_ = std::make_unique<faults::Watch>(std::move(regions));
}

std::string Pager::released_text(int param) const {
  return fmt::format("parameter {} (unit {}, rank {}) is released; read it inside GatheredParameters",
                     names_[static_cast<size_t>(param)], layout_->segment_of(param).unit, rank_);
}

// A null base releases.
void Pager::point_params(int u, const std::byte* base) {
  const Unit& unit = layout_->unit(u);
  for (const Segment& segment : unit.segments) {
    const auto param = static_cast<size_t>(segment.param);
    c10::StorageImpl& s = storage_of(tensors_[param]);
    if (storage::tag_of(s) == nullptr || writable_[param] != nullptr) continue;
    if (base == nullptr && segment.numel > 0) {
      storage::point_nowhere(s, released_text(segment.param));
    } else {
      // Operations only read parameters (writing ones are stopped before they run), so constness is kept in
      // fact.
      storage::point_to(s, const_cast<std::byte*>(base) + segment.offset * size_of(unit.dtype));
    }
  }
}

void Pager::pin(int u, Mode mode) {
  std::unique_lock lock(mutex_);
  Page& p = page(u);
  ++p.pins;
  p.last_use = ++clock_;
  if (persistent_[static_cast<size_t>(u)]) return;
  predictor_.touched(u, mode);
  if (p.state == State::gathered) return;
  try {
    gather_locked(lock, u);
  } catch (...) {
    --p.pins;
    throw;
  }
}

void Pager::gather_locked(std::unique_lock<std::mutex>& lock, int u) {
  Page& p = page(u);
  gathered_.wait(lock, [&] { return p.state != State::gathering; });
  if (p.state == State::gathered) return;
  make_room_locked(u);
  p.state = State::gathering;
  lock.unlock();
  const auto start = std::chrono::steady_clock::now();
  const std::byte* base = nullptr;
  std::exception_ptr failure;
  try {
    base = store_->gather(u);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  p.state = failure ? State::released : State::gathered;
  gathered_.notify_all();
  if (failure) std::rethrow_exception(failure);
  point_params(u, base);
  live_ += unit_numel_[static_cast<size_t>(u)];
  ++stats_.gathers;
  stats_.gathered_numel += unit_numel_[static_cast<size_t>(u)];
  stats_.gather_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Releases what is not expected back soon, then the least recently used, until `u` fits.
void Pager::make_room_locked(int u) {
  std::vector<int> idle;
  for (int v = 0; v < static_cast<int>(pages_.size()); ++v) {
    const Page& p = page(v);
    if (p.state == State::gathered && p.pins == 0 && !persistent_[static_cast<size_t>(v)]) idle.push_back(v);
  }
  std::sort(idle.begin(), idle.end(), [&](int a, int b) { return page(a).last_use < page(b).last_use; });
  const int64_t needed = unit_numel_[static_cast<size_t>(u)];
  for (const int v : idle) {
    const bool crowded = live_ + needed > options_.max_live;
    if (crowded ||
        predictor_.distance_to(v, unit_numel_).value_or(total_numel_) > options_.max_reuse_distance) {
      release_locked(v);
    }
  }
}

void Pager::release_locked(int u) {
  point_params(u, nullptr);
  store_->release(u);
  page(u).state = State::released;
  live_ -= unit_numel_[static_cast<size_t>(u)];
}

void Pager::unpin(int u) {
  const std::lock_guard lock(mutex_);
  --page(u).pins;
}

void Pager::release_idle() {
  const std::lock_guard lock(mutex_);
  for (int u = 0; u < static_cast<int>(pages_.size()); ++u) {
    const Page& p = page(u);
    if (p.state == State::gathered && p.pins == 0 && !persistent_[static_cast<size_t>(u)]) release_locked(u);
  }
}

int64_t Pager::live_numel() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

void Pager::set_writable(int param, void* memory) {
  const std::lock_guard lock(mutex_);
  writable_[static_cast<size_t>(param)] = memory;
  c10::StorageImpl& s = storage_of(tensor(param));
  if (memory != nullptr) {
    storage::point_to(s, memory);
    return;
  }
  const SegmentId id = layout_->segment_of(param);
  const int64_t offset = layout_->segment(id).offset * size_of(layout_->unit(id.unit).dtype);
  storage::point_to(s, const_cast<std::byte*>(store_->gather(id.unit)) + offset);
}

void Pager::begin_write_attempt(int param, const char* operation) {
  storage::forbid(
      storage_of(tensor(param)),
      fmt::format(
          "{} would write parameter {} outside GatheredParameters (rank {}): an engine's parameters are "
          "changed by step() or inside GatheredParameters only, since other ranks and the master "
          "weights would not see it",
          operation, name(param), rank_));
}

void Pager::end_write_attempt(int param) {
  storage::allow(storage_of(tensor(param)));
}

void Pager::poison_access(int param, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  log::warn("parameter {} could not be gathered: {}", name(param), cause);
  storage::forbid(storage_of(tensor(param)),
                  fmt::format("parameter {} could not be gathered: {}", name(param), cause));
}

PagerStats Pager::take_stats() {
  const std::lock_guard lock(mutex_);
  return std::exchange(stats_, {});
}

}  // namespace aliquot
