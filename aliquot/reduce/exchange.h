// Moves the chunks of a bucket to their owners; nobody adds on the way.
//
// In shared memory a rank writes its chunks into its part of a segment and, after one barrier, every owner
// reads its chunk from every part: bytes sent 0, bytes read (N−1)/N of the bucket, steps 1. Elsewhere an
// all-to-all: bytes sent (N−1)/N of the bucket, steps N−1.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/memory/buffer.h"

namespace aliquot {

class Exchange {
 public:
  /// Collective. `capacity`: the largest sum of chunk sizes, in bytes, that will be exchanged.
  static std::unique_ptr<Exchange> create(const Comm& comm, int64_t capacity, std::shared_ptr<Meter> meter);
  virtual ~Exchange() = default;

  /// Where this rank writes its chunks, one after another in order of owner, each `round_up(size, 64)` bytes
  /// long.
  virtual std::byte* outgoing() = 0;

  /// Collective: hands every chunk to its owner. `sizes[o]` is the size of chunk o, the same on every rank.
  /// Returns, by rank, the chunk that each rank addressed to this one, valid until the exchange after the
  /// next.
  virtual std::span<const std::byte* const> exchange(std::span<const int64_t> sizes,
                                                     std::string_view what) = 0;
};

}  // namespace aliquot
