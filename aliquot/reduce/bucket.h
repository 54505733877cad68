// Buckets: which gradients travel together, and how a bucket is cut into chunks for the owners. Pure
// arithmetic.
//
// A bucket is a run of trainable segments of one dtype in reverse registration order, the order in which
// backward delivers them, closed before it would pass the bucket size; a larger segment is a bucket of its
// own. The order is the same on every rank, so every rank launches the same bucket next, whatever arrived
// first. Chunk o of a bucket holds the pieces that rank o owns; bucket sizes never change a bit, since
// addition is element by element ([Note: arithmetic] A2, E3).
#pragma once

#include <cstdint>
#include <vector>

#include "aliquot/layout/layout.h"

namespace aliquot {

struct BucketPiece {
  int index = 0;             ///< of its segment in the bucket
  int64_t unit_offset = 0;   ///< elements from the unit's start
  int64_t param_offset = 0;  ///< elements from the parameter's start
  int64_t chunk_offset = 0;  ///< elements from the chunk's first; starts on 64 bytes in any dtype
  int64_t numel = 0;
};

struct Chunk {
  std::vector<BucketPiece> pieces;
  int64_t numel = 0;  ///< with gaps
};

struct Bucket {
  DType dtype = DType::fp32;  ///< of the parameters
  std::vector<SegmentId> segments;
  std::vector<Chunk> chunks;  ///< by owner
};

/// `bucket_numel` below 1 counts as 1: each segment alone.
std::vector<Bucket> plan_buckets(const Layout& layout, int64_t bucket_numel);

/// The bucket size in use: `reduce_bucket_size`, but no larger than a sixteenth of the model (at least 1 Mi
/// elements). A larger one could not overlap with backward, and its memory would be wasted.
int64_t effective_bucket_numel(const Layout& layout, int64_t reduce_bucket_size);

}  // namespace aliquot
