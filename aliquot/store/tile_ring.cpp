#include "aliquot/store/tile_ring.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

int64_t Tile::bytes() const {
  int64_t total = 0;
  for (const TilePart& part : parts) total += part.bytes;
  return total;
}

/// A staging buffer and what is in flight in it.
struct TileRing::Slot {
  Slot(const std::shared_ptr<Meter>& meter, int64_t bytes)
      : memory(meter, Kind::staging, std::max(bytes, kDirectAlignment), Buffer::Use::scratch) {}

  void wait() {
    for (IoTicket& ticket : tickets) ticket.wait();
    tickets.clear();
  }
  /// As `wait`, where a failure is on its way already.
  void drain() {
    for (IoTicket& ticket : tickets) {
      try {
        ticket.wait();
      } catch (const std::exception&) {  // the first one is thrown
      }
    }
    tickets.clear();
  }

  Buffer memory;
  std::vector<IoTicket> tickets;
};

TileRing::TileRing(const TileRingOptions& options, std::shared_ptr<Meter> meter)
    : options_(options), meter_(std::move(meter)) {}

TileRing::~TileRing() = default;

void TileRing::make_slots(size_t count, int64_t bytes) {
  if (slots_.size() >= count && (slots_.empty() || slots_[0]->memory.bytes() >= bytes)) return;
  slots_.clear();
  for (size_t i = 0; i < count; ++i) slots_.push_back(std::make_unique<Slot>(meter_, bytes));
}

void TileRing::start_read(Slot& slot, const Tile& tile) {
  const auto start = Clock::now();
  slot.wait();  // what was written from it
  stats_.write_wait_ms += ms_since(start);
  int64_t begin = 0;
  for (const TilePart& part : tile.parts) {
    slot.tickets.push_back(part.store->start_read(
        part.extent, part.offset, {slot.memory.data() + begin, static_cast<size_t>(part.bytes)}));
    begin += part.bytes;
  }
  stats_.bytes_read += begin;
}

void TileRing::start_write(Slot& slot, const Tile& tile) {
  int64_t begin = 0;
  for (const TilePart& part : tile.parts) {
    slot.tickets.push_back(part.store->start_write(
        part.extent, part.offset, {slot.memory.data() + begin, static_cast<size_t>(part.bytes)}));
    begin += part.bytes;
  }
  stats_.bytes_written += begin;
  if (options_.write_behind) return;
  const auto start = Clock::now();
  slot.wait();
  stats_.write_wait_ms += ms_since(start);
}

void TileRing::run(std::span<const Tile> tiles, const Compute& compute) {
  int64_t largest = 0;
  for (const Tile& tile : tiles) largest = std::max(largest, tile.bytes());
  const size_t count =
      std::min<size_t>(static_cast<size_t>(std::max<int64_t>(options_.buffers, 1)), tiles.size());
  make_slots(count, largest);
  struct Drain {
    std::vector<std::unique_ptr<Slot>>& slots;
    ~Drain() {
      for (const auto& slot : slots) slot->drain();
    }
  } const drain{slots_};

  // At least one buffer is kept for what is being written, so that reading ahead does not wait for it.
  const size_t ahead = options_.read_ahead ? std::max<size_t>(count, 2) - 1 : 1;
  size_t next = 0;
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (; next < tiles.size() && next < i + std::min(ahead, count); ++next)
      start_read(*slots_[next % count], tiles[next]);
    Slot& slot = *slots_[i % count];
    auto start = Clock::now();
    slot.wait();
    stats_.read_wait_ms += ms_since(start);
    std::vector<std::span<std::byte>> parts;
    std::byte* begin = slot.memory.data();
    for (const TilePart& part : tiles[i].parts) {
      parts.emplace_back(begin, static_cast<size_t>(part.bytes));
      begin += part.bytes;
    }
    start = Clock::now();
    compute(i, parts);
    stats_.compute_ms += ms_since(start);
    start_write(slot, tiles[i]);
  }
  const auto start = Clock::now();
  for (const auto& slot : slots_) slot->wait();
  stats_.write_wait_ms += ms_since(start);
}

TileRingStats TileRing::take_stats() {
  return std::exchange(stats_, {});
}

}  // namespace aliquot
