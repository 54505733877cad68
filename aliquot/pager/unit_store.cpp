#include "aliquot/pager/unit_store.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "aliquot/error.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/memory/debug.h"
#include "aliquot/pager/faults.h"

namespace aliquot {
namespace {

constexpr int64_t kPage = 4096;

size_t at(int unit) {
  return static_cast<size_t>(unit);
}

class StoreBase : public UnitStore {
 public:
  StoreBase(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter)
      : layout_(std::move(layout)), comm_(std::move(comm)), meter_(std::move(meter)) {}

 protected:
  int units() const { return static_cast<int>(layout_->units().size()); }
  size_t slice_bytes(int u) const { return static_cast<size_t>(layout_->slice_bytes(u)); }
  size_t unit_bytes(int u) const { return static_cast<size_t>(layout_->unit_bytes(u)); }

  std::shared_ptr<const Layout> layout_;
  Comm comm_;
  std::shared_ptr<Meter> meter_;
};

class ReplicatedStore final : public StoreBase {
 public:
  ReplicatedStore(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter)
      : StoreBase(std::move(layout), std::move(comm), std::move(meter)) {
    for (int u = 0; u < units(); ++u) units_.emplace_back(meter_, Kind::params, layout_->unit_bytes(u));
  }

  std::byte* slice(int u) override { return whole(u) + slice_bytes(u) * static_cast<size_t>(comm_.rank()); }
  std::byte* whole(int u) override { return units_[at(u)].data(); }
  const std::byte* gather(int u) override { return units_[at(u)].data(); }
  void release(int) override {}
  bool is_gathered(int) const override { return true; }
  bool gathers_collectively() const override { return false; }
  void refresh(int) override {}

  void publish(bool replicated_update) override {
    if (replicated_update || comm_.size() == 1) return;
    for (int u = 0; u < units(); ++u) {
      if (!layout_->unit(u).trainable || layout_->unit_bytes(u) == 0) continue;
      comm_.all_gather(slice(u), whole(u), slice_bytes(u), fmt::format("publish unit {}", u));
    }
  }

 private:
  std::vector<Buffer> units_;
};

// Bytes of one unit within a slab that holds all of them, each starting on kAlignment.
// Guarded units start on pages.
std::vector<size_t> offsets_of(const Layout& layout, bool slices, size_t& total) {
  const int64_t alignment = debug::guarding() && !slices ? kPage : kAlignment;
  std::vector<size_t> offsets;
  total = 0;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    offsets.push_back(total);
    total += static_cast<size_t>(round_up(slices ? layout.slice_bytes(u) : layout.unit_bytes(u), alignment));
  }
  return offsets;
}

class SegmentStore final : public StoreBase {
 public:
  SegmentStore(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter,
               std::shared_ptr<SharedSegment> segment)
      : StoreBase(std::move(layout), std::move(comm), std::move(meter)),
        segment_(std::move(segment)),
        guarded_(debug::guarding()),
        gathered_(at(units()), false) {
    size_t total = 0;
    offsets_ = offsets_of(*layout_, false, total);
    for (int u = 0; u < units(); ++u) own_bytes_ += layout_->slice_bytes(u);
    meter_->add(Kind::params, Place::host, own_bytes_);
  }
  ~SegmentStore() override {
    for (int u = 0; u < units(); ++u) release(u);
    meter_->remove(Kind::params, Place::host, own_bytes_);
  }

  std::byte* slice(int u) override {
    return segment_->write() + offsets_[at(u)] + slice_bytes(u) * static_cast<size_t>(comm_.rank());
  }
  std::byte* whole(int) override { return nullptr; }
  const std::byte* gather(int u) override {
    if (!gathered_[at(u)]) {
      meter_->add(Kind::gathered, Place::host, layout_->unit_bytes(u));
      if (guarded_) faults::open(readable(u), layout_->unit_bytes(u));
    }
    gathered_[at(u)] = true;
    return readable(u);
  }
  void release(int u) override {
    if (gathered_[at(u)]) {
      meter_->remove(Kind::gathered, Place::host, layout_->unit_bytes(u));
      if (guarded_) faults::close(readable(u), layout_->unit_bytes(u));
    }
    gathered_[at(u)] = false;
  }
  bool is_gathered(int u) const override { return gathered_[at(u)]; }
  bool gathers_collectively() const override { return false; }
  void refresh(int) override { comm_.barrier("publish"); }
  void publish(bool) override { comm_.barrier("publish"); }
  const std::byte* mapped(int u) const override { return readable(u); }

 private:
  const std::byte* readable(int u) const { return segment_->read() + offsets_[at(u)]; }

  std::shared_ptr<SharedSegment> segment_;
  bool guarded_;
  std::vector<size_t> offsets_;
  std::vector<bool> gathered_;
  int64_t own_bytes_ = 0;
};

class CollectiveStore final : public StoreBase {
 public:
  CollectiveStore(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter)
      : StoreBase(std::move(layout), std::move(comm), std::move(meter)), gathered_(at(units())) {
    size_t total = 0;
    offsets_ = offsets_of(*layout_, true, total);
    slices_ = Buffer(meter_, Kind::params, static_cast<int64_t>(total));
  }

  std::byte* slice(int u) override { return slices_.data() + offsets_[at(u)]; }
  std::byte* whole(int) override { return nullptr; }
  const std::byte* gather(int u) override {
    Buffer& buffer = gathered_[at(u)];
    if (buffer.bytes() == 0 && unit_bytes(u) > 0) {
      buffer = Buffer(meter_, Kind::gathered, layout_->unit_bytes(u), Buffer::Use::scratch);
      all_gather(u);
    }
    return buffer.data();
  }
  void release(int u) override {
    debug::poison(gathered_[at(u)].data(), gathered_[at(u)].bytes());
    gathered_[at(u)] = Buffer();
  }
  bool is_gathered(int u) const override { return gathered_[at(u)].bytes() > 0; }
  bool gathers_collectively() const override { return comm_.size() > 1; }
  void refresh(int u) override {
    if (is_gathered(u)) all_gather(u);
  }
  void publish(bool) override {
    for (int u = 0; u < units(); ++u) {
      if (layout_->unit(u).trainable) refresh(u);
    }
  }

 private:
  void all_gather(int u) {
    comm_.all_gather(slice(u), gathered_[at(u)].data(), slice_bytes(u), fmt::format("gather unit {}", u));
  }

  Buffer slices_;
  std::vector<size_t> offsets_;
  std::vector<Buffer> gathered_;
};

}  // namespace

void UnitStore::read_slice(int u, int64_t offset, std::span<std::byte> out) {
  if (!out.empty()) std::memcpy(out.data(), slice(u) + offset, out.size());
}

void UnitStore::write_slice(int u, int64_t offset, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(slice(u) + offset, bytes.data(), bytes.size());
}

std::unique_ptr<UnitStore> UnitStore::create(std::shared_ptr<const Layout> layout, Spread params, Comm comm,
                                             std::shared_ptr<Meter> meter) {
  if (params == Spread::replicated) {
    return std::make_unique<ReplicatedStore>(std::move(layout), std::move(comm), std::move(meter));
  }
  size_t total = 0;
  offsets_of(*layout, false, total);
  if (auto segment = comm.share(total, "allocate parameters")) {
    return std::make_unique<SegmentStore>(std::move(layout), std::move(comm), std::move(meter),
                                          std::move(segment));
  }
  return std::make_unique<CollectiveStore>(std::move(layout), std::move(comm), std::move(meter));
}

}  // namespace aliquot
