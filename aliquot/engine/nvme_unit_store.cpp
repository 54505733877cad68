#include "aliquot/engine/nvme_unit_store.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "aliquot/memory/debug.h"

namespace aliquot {

NvmeUnitStore::NvmeUnitStore(std::shared_ptr<const Layout> layout, Comm comm, std::shared_ptr<Meter> meter,
                             std::shared_ptr<NvmeStore> files, int64_t max_in_memory)
    : layout_(std::move(layout)),
      comm_(std::move(comm)),
      meter_(std::move(meter)),
      files_(std::move(files)),
      slices_(layout_->units().size()),
      gathered_(layout_->units().size()) {
  int64_t in_memory = 0;
  for (int u = 0; u < static_cast<int>(slices_.size()); ++u) {
    const int64_t bytes = layout_->slice_bytes(u);
    if (in_memory + layout_->slice_numel(u) <= max_in_memory) {
      in_memory += layout_->slice_numel(u);
      at(u).memory = Buffer(meter_, Kind::params, bytes);
    } else {
      at(u).file = files_->allocate(bytes);
      meter_->add(Kind::params, Place::nvme, bytes);
    }
  }
}

NvmeUnitStore::~NvmeUnitStore() {
  for (const Slice& slice : slices_) {
    if (slice.file) meter_->remove(Kind::params, Place::nvme, slice.file->bytes);
  }
}

const Extent* NvmeUnitStore::extent(int u) const {
  const std::optional<Extent>& file = slices_[static_cast<size_t>(u)].file;
  return file ? &*file : nullptr;
}

std::byte* NvmeUnitStore::slice(int u) {
  return at(u).memory.data();
}

void NvmeUnitStore::read_slice(int u, int64_t offset, std::span<std::byte> out) {
  if (at(u).file) {
    files_->read(*at(u).file, offset, out);
  } else {
    UnitStore::read_slice(u, offset, out);
  }
}

void NvmeUnitStore::write_slice(int u, int64_t offset, std::span<const std::byte> bytes) {
  if (at(u).file) {
    files_->write(*at(u).file, offset, bytes);
  } else {
    UnitStore::write_slice(u, offset, bytes);
  }
}

void NvmeUnitStore::fill(int u) {
  const int64_t bytes = layout_->slice_bytes(u);
  std::byte* whole = gathered_[static_cast<size_t>(u)].data();
  std::byte* own = whole + bytes * comm_.rank();
  read_slice(u, 0, {own, static_cast<size_t>(bytes)});
  if (comm_.size() > 1)
    comm_.all_gather(own, whole, static_cast<size_t>(bytes), fmt::format("gather unit {}", u));
}

const std::byte* NvmeUnitStore::gather(int u) {
  Buffer& buffer = gathered_[static_cast<size_t>(u)];
  if (buffer.bytes() == 0 && layout_->unit_bytes(u) > 0) {
    buffer = Buffer(meter_, Kind::gathered, layout_->unit_bytes(u), Buffer::Use::scratch);
    try {
      fill(u);
    } catch (...) {
      buffer = Buffer();
      throw;
    }
  }
  return buffer.data();
}

void NvmeUnitStore::release(int u) {
  Buffer& buffer = gathered_[static_cast<size_t>(u)];
  debug::poison(buffer.data(), buffer.bytes());
  buffer = Buffer();
}

bool NvmeUnitStore::is_gathered(int u) const {
  return gathered_[static_cast<size_t>(u)].bytes() > 0;
}

void NvmeUnitStore::refresh(int u) {
  if (is_gathered(u)) fill(u);
}

void NvmeUnitStore::publish(bool) {
  for (int u = 0; u < static_cast<int>(slices_.size()); ++u) {
    if (layout_->unit(u).trainable) refresh(u);
  }
}

}  // namespace aliquot
