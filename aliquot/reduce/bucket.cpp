#include "aliquot/reduce/bucket.h"

#include <algorithm>
#include <array>

#include "aliquot/memory/buffer.h"

namespace aliquot {
namespace {

constexpr int64_t kMinBucketNumel = int64_t{1} << 20;

// 64 bytes of the narrowest dtype: then a chunk offset is aligned in every dtype.
constexpr int64_t kChunkAlignment = kAlignment / 2;

void cut_into_chunks(const Layout& layout, Bucket& bucket) {
  bucket.chunks.resize(static_cast<size_t>(layout.world()));
  for (int owner = 0; owner < layout.world(); ++owner) {
    Chunk& chunk = bucket.chunks[static_cast<size_t>(owner)];
    for (size_t i = 0; i < bucket.segments.size(); ++i) {
      const SegmentId id = bucket.segments[i];
      const Segment& segment = layout.segment(id);
      const Range own = layout.slice(id.unit, owner);
      const int64_t begin = std::max(own.begin, segment.offset);
      const int64_t end = std::min(own.end, segment.offset + segment.numel);
      if (begin >= end) continue;
      const int64_t offset = round_up(chunk.numel, kChunkAlignment);
      chunk.pieces.push_back({static_cast<int>(i), begin, begin - segment.offset, offset, end - begin});
      chunk.numel = offset + end - begin;
    }
  }
}

// Trainable segments, last registered first.
std::vector<SegmentId> delivery_order(const Layout& layout) {
  std::vector<std::pair<int, SegmentId>> by_param;
  for (size_t u = 0; u < layout.units().size(); ++u) {
    const Unit& unit = layout.units()[u];
    if (!unit.trainable) continue;
    for (size_t s = 0; s < unit.segments.size(); ++s) {
      by_param.push_back({unit.segments[s].param, {static_cast<int>(u), static_cast<int>(s)}});
    }
  }
  std::sort(by_param.begin(), by_param.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<SegmentId> order;
  order.reserve(by_param.size());
  for (const auto& [param, id] : by_param) order.push_back(id);
  return order;
}

}  // namespace

std::vector<Bucket> plan_buckets(const Layout& layout, int64_t bucket_numel) {
  struct Open {
    Bucket bucket;
    int64_t numel = 0;
  };
  std::array<Open, 3> open;  // by dtype
  std::vector<Bucket> buckets;
  const auto close = [&](Open& o) {
    if (!o.bucket.segments.empty()) buckets.push_back(std::move(o.bucket));
    o = {};
  };
  for (const SegmentId id : delivery_order(layout)) {
    const DType dtype = layout.unit(id.unit).dtype;
    Open& o = open[static_cast<size_t>(dtype)];
    const int64_t numel = layout.segment(id).numel;
    if (o.numel + numel > std::max<int64_t>(bucket_numel, 1)) close(o);
    o.bucket.dtype = dtype;
    o.bucket.segments.push_back(id);
    o.numel += numel;
  }
  for (Open& o : open) close(o);
  for (Bucket& bucket : buckets) cut_into_chunks(layout, bucket);
  return buckets;
}

int64_t effective_bucket_numel(const Layout& layout, int64_t reduce_bucket_size) {
  int64_t total = 0;
  for (const Unit& unit : layout.units()) total += unit.trainable ? unit.numel : 0;
  return std::min(reduce_bucket_size, std::max(total / 16, kMinBucketNumel));
}

}  // namespace aliquot
