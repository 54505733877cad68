// Stage 3 with `offload_param` on NVMe: a rank's slices lie in files, and a unit is in memory while it is
// gathered.
//
// A gather reads the own slice and, with several ranks, is an all-gather that all of them enter. Bytes read a
// gather: the slice. What fits within `max_in_memory` elements stays in memory, first units first.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/layout/layout.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/pager/unit_store.h"
#include "aliquot/store/nvme_store.h"

namespace aliquot {

class NvmeUnitStore final : public UnitStore {
 public:
  /// `comm` is used by nothing else. Throws IoError if there is not enough room.
  NvmeUnitStore(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter,
                std::shared_ptr<NvmeStore> files, int64_t max_in_memory);
  ~NvmeUnitStore() override;

  std::byte* slice(int u) override;
  void read_slice(int u, int64_t offset, std::span<std::byte> out) override;
  void write_slice(int u, int64_t offset, std::span<const std::byte> bytes) override;
  std::byte* whole(int) override { return nullptr; }
  const std::byte* gather(int u) override;
  void release(int u) override;
  bool is_gathered(int u) const override;
  void publish(bool replicated_update) override;
  void refresh(int u) override;
  bool gathers_collectively() const override { return comm_.size() > 1; }
  bool outlives_engine() const override { return false; }

  NvmeStore& files() const { return *files_; }
  /// Where this rank's slice of unit `u` lies; null if it is in memory.
  const Extent* extent(int u) const;

 private:
  struct Slice {
    Buffer memory;
    std::optional<Extent> file;
  };
  void fill(int u);
  Slice& at(int u) { return slices_[static_cast<size_t>(u)]; }

  std::shared_ptr<const Layout> layout_;
  Comm comm_;
  std::shared_ptr<Meter> meter_;
  std::shared_ptr<NvmeStore> files_;
  std::vector<Slice> slices_;
  std::vector<Buffer> gathered_;
};

}  // namespace aliquot
