// read → compute → write over tiles that do not all fit in memory.
//
// A ring of staging buffers, one tile in each. While tile i is computed, later ones are read ahead into free
// buffers and earlier ones are written back, as far as the number of buffers goes: one buffer is strictly one
// after the other, two overlap writing with the next read, three overlap all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "aliquot/memory/buffer.h"
#include "aliquot/store/nvme_store.h"

namespace aliquot {

/// A run of bytes of one extent; offset and bytes are multiples of kDirectAlignment.
struct TilePart {
  NvmeStore* store = nullptr;
  Extent extent;
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// What is computed together. In its buffer the parts lie one after another.
struct Tile {
  std::vector<TilePart> parts;
  int64_t bytes() const;
};

struct TileRingOptions {
  int64_t buffers = 4;     ///< at least 1
  bool read_ahead = true;  ///< false: a tile is read when its turn has come
  bool write_behind = true;
};

/// Milliseconds that the caller waited, and bytes moved.
struct TileRingStats {
  double read_wait_ms = 0, write_wait_ms = 0, compute_ms = 0;
  int64_t bytes_read = 0, bytes_written = 0;
};

class TileRing {
 public:
  /// `compute(i, parts)`: the bytes of tile i's parts, writable; all of them are written back. Runs on the
  /// caller's thread, tile by tile in order.
  using Compute = std::function<void(size_t tile, std::span<const std::span<std::byte>> parts)>;

  TileRing(const TileRingOptions& options, std::shared_ptr<Meter> meter);
  ~TileRing();

  /// Returns when everything is written. If a transfer or `compute` throws, what is in flight ends first.
  void run(std::span<const Tile> tiles, const Compute& compute);
  TileRingStats take_stats();

 private:
  struct Slot;
  void make_slots(size_t count, int64_t bytes);
  void start_read(Slot& slot, const Tile& tile);
  void start_write(Slot& slot, const Tile& tile);

  TileRingOptions options_;
  std::shared_ptr<Meter> meter_;
  TileRingStats stats_;
  std::vector<std::unique_ptr<Slot>> slots_;  // kept from run to run: fresh memory costs page faults
};

}  // namespace aliquot
