// One bucket on its way: chunks filled, exchanged, and added by their owner. See [Note: reduction] and, for
// the order of every addition and rounding, [Note: arithmetic] A2 and A3.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "aliquot/error.h"
#include "aliquot/optim/kernels.h"
#include "aliquot/reduce/reducer.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;

size_t at(int i) {
  return static_cast<size_t>(i);
}

// At the head of every chunk, followed by one byte per segment of the bucket: whether the sender has a
// gradient for it.
struct ChunkHeader {
  int64_t backward_number;
  int32_t bucket;
  int32_t segments;
};

int64_t header_bytes(const Bucket& bucket) {
  return round_up(static_cast<int64_t>(sizeof(ChunkHeader) + bucket.segments.size()), kAlignment);
}

const std::byte* presence(const std::byte* chunk) {
  return chunk + sizeof(ChunkHeader);
}

constexpr int64_t kTile = 4096;  // fits the first-level cache twice over in fp32

// Converts through fp32, dividing by `divisor`: one rounding.
void convert(const std::byte* in, DType from, std::byte* out, DType to, float divisor, int64_t n) {
  alignas(kAlignment) std::array<float, kTile> tile;
  for (int64_t done = 0; done < n; done += kTile) {
    const int64_t m = std::min(kTile, n - done);
    kernels::widen(in + done * size_of(from), from, tile.data(), m);
    if (divisor != 1.0F) {
      for (int64_t i = 0; i < m; ++i) tile[static_cast<size_t>(i)] /= divisor;
    }
    kernels::narrow(tile.data(), out + done * size_of(to), to, m);
  }
}

}  // namespace

std::vector<int64_t> Reducer::chunk_sizes(const Bucket& bucket, DType wire) const {
  std::vector<int64_t> sizes;
  for (const Chunk& chunk : bucket.chunks)
    sizes.push_back(header_bytes(bucket) + chunk.numel * size_of(wire));
  return sizes;
}

int64_t Reducer::capacity() const {
  int64_t most = 0;
  for (const Bucket& bucket : buckets_) {
    // Replicated gradients may travel as fp32 sums, born ones as they are or as communication_data_type.
    DType widest = sharded() ? wire_dtype(bucket.dtype) : DType::fp32;
    if (size_of(wire_dtype(widest)) > size_of(widest)) widest = DType::fp32;
    int64_t total = 0;
    for (const int64_t size : chunk_sizes(bucket, widest)) total += round_up(size, kAlignment);
    most = std::max(most, total);
  }
  return most;
}

void Reducer::reduce_bucket(int bucket, DType from, DType wire, bool accumulate,
                            const Contribution& contribution) {
  const auto start = Clock::now();
  fill_chunks(bucket, from, wire, contribution);
  const std::vector<int64_t> sizes = chunk_sizes(buckets_[at(bucket)], wire);
  const auto incoming = exchange_->exchange(sizes, describe(bucket));
  add_own_chunk(bucket, wire, accumulate, incoming);
  for (int r = 0; r < comm_.size(); ++r) stats_.bytes += r == comm_.rank() ? 0 : sizes[at(r)];
  ++stats_.buckets;
  stats_.reduce_ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Reducer::fill_chunks(int bucket, DType from, DType wire, const Contribution& contribution) {
  const Bucket& b = buckets_[at(bucket)];
  const ChunkHeader header{backward_number_, bucket, static_cast<int32_t>(b.segments.size())};
  const float divisor = divides(wire) ? static_cast<float>(options_.predivide) : 1.0F;
  std::byte* out = exchange_->outgoing();
  for (const Chunk& chunk : b.chunks) {
    std::memcpy(out, &header, sizeof(header));
    for (size_t i = 0; i < b.segments.size(); ++i) {
      out[sizeof(header) + i] = std::byte{contribution(static_cast<int>(i)) != nullptr};
    }
    std::byte* payload = out + header_bytes(b);
    for (const BucketPiece& piece : chunk.pieces) {
      const std::byte* grad = contribution(piece.index);
      if (grad == nullptr) continue;
      grad += piece.param_offset * size_of(from);
      std::byte* destination = payload + piece.chunk_offset * size_of(wire);
      if (from == wire && divisor == 1.0F) {
        std::memcpy(destination, grad, static_cast<size_t>(piece.numel * size_of(wire)));
      } else {
        convert(grad, from, destination, wire, divisor, piece.numel);
      }
    }
    out += round_up(header_bytes(b) + chunk.numel * size_of(wire), kAlignment);
  }
}

void Reducer::check_header(const std::byte* chunk, int rank, int bucket) const {
  ChunkHeader header;
  std::memcpy(&header, chunk, sizeof(header));
  if (header.backward_number == backward_number_ && header.bucket == bucket) return;
  throw CommError(fmt::format(
      "ranks diverged: rank {} is in backward {} at bucket {} ({}), rank {} in backward {} at bucket "
      "{}; every rank must call backward() equally often before step()",
      comm_.rank(), backward_number_, bucket, describe(bucket), rank, header.backward_number, header.bucket));
}

void Reducer::add_own_chunk(int bucket, DType wire, bool accumulate,
                            std::span<const std::byte* const> incoming) {
  const Bucket& b = buckets_[at(bucket)];
  for (int r = 0; r < comm_.size(); ++r) check_header(incoming[at(r)], r, bucket);

  std::vector<const void*> inputs(incoming.size());
  for (const BucketPiece& piece : b.chunks[at(comm_.rank())].pieces) {
    bool any = false;
    for (size_t r = 0; r < incoming.size(); ++r) {
      const bool present = presence(incoming[r])[piece.index] != std::byte{0};
      inputs[r] = present ? incoming[r] + header_bytes(b) + piece.chunk_offset * size_of(wire) : nullptr;
      any = any || present;
    }
    if (!any) continue;
    const SegmentId id = b.segments[at(piece.index)];
    add_piece(piece, id, wire, accumulate && contributed_[at(param_of(id))], inputs);
  }
  for (size_t i = 0; i < b.segments.size(); ++i) {
    for (const std::byte* chunk : incoming) {
      if (presence(chunk)[i] == std::byte{0}) continue;
      const int param = param_of(b.segments[i]);
      used_[at(param)] = true;
      if (sharded()) contributed_[at(param)] = true;
    }
  }
}

void Reducer::add_piece(const BucketPiece& piece, SegmentId id, DType wire, bool accumulate,
                        std::span<const void* const> inputs) {
  std::byte* sum = gradients_.at(id.unit, piece.unit_offset);
  if (!divides(wire)) {
    kernels::reduce(inputs, wire, sum, gradients_.dtype(), accumulate, piece.numel);
    return;
  }
  alignas(kAlignment) std::array<float, kTile> tile;
  const auto factor = static_cast<float>(options_.predivide);
  std::vector<const void*> shifted(inputs.size());
  for (int64_t done = 0; done < piece.numel; done += kTile) {
    const int64_t m = std::min(kTile, piece.numel - done);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const auto* input = static_cast<const std::byte*>(inputs[r]);
      shifted[r] = input == nullptr ? nullptr : input + done * size_of(wire);
    }
    kernels::reduce(shifted, wire, tile.data(), DType::fp32, false, m);
    for (int64_t i = 0; i < m; ++i) tile[static_cast<size_t>(i)] *= factor;
    const void* const scaled = tile.data();
    kernels::reduce({&scaled, 1}, DType::fp32, sum + done * size_of(gradients_.dtype()), gradients_.dtype(),
                    accumulate, m);
  }
}

}  // namespace aliquot
