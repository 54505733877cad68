#include "aliquot/reduce/exchange.h"

#include <utility>

#include "aliquot/error.h"
#include "aliquot/memory/debug.h"

namespace aliquot {
namespace {

size_t at(int i) {
  return static_cast<size_t>(i);
}

class SharedExchange final : public Exchange {
 public:
  SharedExchange(Comm comm, int64_t part, std::shared_ptr<SharedSegment> segment,
                 std::shared_ptr<Meter> meter)
      : comm_(std::move(comm)),
        part_(part),
        segment_(std::move(segment)),
        meter_(std::move(meter)),
        incoming_(at(comm_.size())) {
    meter_->add(Kind::buckets, Place::host, part_ * kSlots);
  }
  ~SharedExchange() override { meter_->remove(Kind::buckets, Place::host, part_ * kSlots); }

  std::byte* outgoing() override { return segment_->write() + part_of(comm_.rank()); }

  std::span<const std::byte* const> exchange(std::span<const int64_t> sizes, std::string_view what) override {
    int64_t offset = 0;
    for (int o = 0; o < comm_.rank(); ++o) offset += round_up(sizes[at(o)], kAlignment);
    comm_.barrier(what);
    for (int r = 0; r < comm_.size(); ++r) incoming_[at(r)] = segment_->read() + part_of(r) + offset;
    slot_ = (slot_ + 1) % kSlots;
    return incoming_;
  }

 private:
  // Two slots and one barrier per exchange: a rank enters barrier k+1 only after it has read what barrier k
  // showed it, so after barrier k+1 the slot of k may be written again.
  static constexpr int kSlots = 2;

  size_t part_of(int rank) const { return at(slot_ * comm_.size() + rank) * static_cast<size_t>(part_); }

  Comm comm_;
  int64_t part_;
  std::shared_ptr<SharedSegment> segment_;
  std::shared_ptr<Meter> meter_;
  std::vector<const std::byte*> incoming_;
  int slot_ = 0;
};

class CollectiveExchange final : public Exchange {
 public:
  CollectiveExchange(Comm comm, int64_t capacity, std::shared_ptr<Meter> meter)
      : comm_(std::move(comm)),
        meter_(std::move(meter)),
        out_(meter_, Kind::buckets, capacity, Buffer::Use::scratch),
        incoming_(at(comm_.size())) {}

  std::byte* outgoing() override { return out_.data(); }

  std::span<const std::byte* const> exchange(std::span<const int64_t> sizes, std::string_view what) override {
    const auto mine = static_cast<size_t>(round_up(sizes[at(comm_.rank())], kAlignment));
    std::vector<size_t> send, receive(at(comm_.size()), mine);
    for (const int64_t size : sizes) send.push_back(static_cast<size_t>(round_up(size, kAlignment)));
    // Two receive buffers in turn, so that what one exchange returned outlives the next call.
    Buffer& in = in_[turn_];
    turn_ ^= 1U;
    const auto needed = static_cast<int64_t>(mine) * comm_.size();
    if (in.bytes() < needed) {
      in = Buffer();
      in = Buffer(meter_, Kind::buckets, needed, Buffer::Use::scratch);
    }
    comm_.all_to_all(out_.data(), send, in.data(), receive, what);
    for (int r = 0; r < comm_.size(); ++r) incoming_[at(r)] = in.data() + mine * at(r);
    return incoming_;
  }

 private:
  Comm comm_;
  std::shared_ptr<Meter> meter_;
  Buffer out_;
  Buffer in_[2];
  unsigned turn_ = 0;
  std::vector<const std::byte*> incoming_;
};

}  // namespace

std::unique_ptr<Exchange> Exchange::create(const Comm& comm, int64_t capacity, std::shared_ptr<Meter> meter) {
  const int64_t part = round_up(capacity, 4096);
  if (auto segment = comm.share(static_cast<size_t>(2 * part * comm.size()), "allocate buckets")) {
    return std::make_unique<SharedExchange>(comm, part, std::move(segment), std::move(meter));
  }
  return std::make_unique<CollectiveExchange>(comm, capacity, std::move(meter));
}

}  // namespace aliquot
