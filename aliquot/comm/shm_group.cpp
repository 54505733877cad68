#include "aliquot/comm/shm_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "aliquot/error.h"

namespace aliquot::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Two slots of this per rank. Larger saves meetings on large transfers, but leaves the second-level cache.
constexpr size_t kStaging = size_t{1} << 20;
constexpr size_t kMessage = 1024;
constexpr size_t kText = 96;

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds most) {
  const timespec time{most.count() / 1000, most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void copy_text(char* to, size_t size, std::string_view text) {
  const size_t n = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

}  // namespace

// What one rank came for, by arrival modulo 2: nobody is more than one meeting ahead.
struct Group::Rank {
  alignas(kLine) std::atomic<uint64_t> arrived;
  std::atomic<int32_t> pid;
  struct Purpose {
    char operation[16];
    char what[kText];
    uint64_t bytes;
  } purpose[2];
};

struct Group::Control {
  alignas(kLine) std::atomic<uint32_t> event;  // counts arrivals; waiters sleep on it
  std::atomic<uint32_t> sleepers;
  alignas(kLine) std::atomic<uint32_t> aborted;  // 0 no, 1 being written, 2 readable
  int32_t aborted_by;
  char message[kMessage];
  char listener[kText];  // socket that hands out the segment being shared
};

size_t control_bytes(int world) {
  return kPage + static_cast<size_t>(world) * (kPage + 2 * kStaging);
}

Group::Group(int rank, int world, std::shared_ptr<SharedSegment> control_segment,
             std::chrono::milliseconds timeout)
    : rank_(rank), world_(world), segment_(std::move(control_segment)), timeout_(timeout) {
  static_assert(sizeof(Control) <= kPage && sizeof(Rank) <= kPage);
  // Spinning only helps if the peer runs meanwhile.
  spins_ = static_cast<int>(std::thread::hardware_concurrency()) >= world_ ? 4000 : 0;
  slot(rank_).pid.store(getpid(), std::memory_order_release);
}

Group::Control& Group::control() const {
  return *reinterpret_cast<Control*>(segment_->write());
}

Group::Rank& Group::slot(int rank) const {
  return *reinterpret_cast<Rank*>(segment_->write() + kPage + static_cast<size_t>(rank) * kPage);
}

std::byte* Group::staging(int rank, uint64_t use) const {
  const size_t base = kPage + static_cast<size_t>(world_) * kPage;
  return segment_->write() + base + (static_cast<size_t>(rank) * 2 + use % 2) * kStaging;
}

bool Group::all_arrived() const {
  for (int r = 0; r < world_; ++r) {
    if (slot(r).arrived.load(std::memory_order_acquire) < arrivals_) return false;
  }
  return true;
}

void Group::meet(std::string_view operation, size_t bytes, std::string_view what) {
  ++arrivals_;
  Rank& mine = slot(rank_);
  auto& purpose = mine.purpose[arrivals_ % 2];
  copy_text(purpose.operation, sizeof(purpose.operation), operation);
  copy_text(purpose.what, sizeof(purpose.what), what);
  purpose.bytes = bytes;
  mine.arrived.store(arrivals_, std::memory_order_seq_cst);
  control().event.fetch_add(1, std::memory_order_seq_cst);
  if (control().sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(control().event);
  wait_for_all(what);
  compare(what);
}

void Group::wait_for_all(std::string_view what) {
  for (int i = 0; i < spins_; ++i) {
    if (all_arrived()) return;
    __builtin_ia32_pause();
  }
  const auto start = Clock::now();
  Control& c = control();
  while (true) {
    const uint32_t seen = c.event.load(std::memory_order_seq_cst);
    if (all_arrived()) return;
    if (c.aborted.load(std::memory_order_acquire) == 2) {
      throw CommError(fmt::format("{}: rank {} failed: {}", what, c.aborted_by, c.message));
    }
    check_alive(what, start);
    c.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(c.event, seen, std::chrono::milliseconds(100));
    c.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Group::check_alive(std::string_view what, Clock::time_point start) {
  if (!peers_open_) {
    // A peer that has not joined yet has no pid; it is looked for again at the next wait.
    peers_open_ = true;
    peers_.clear();
    for (int r = 0; r < world_; ++r) {
      const int32_t pid = slot(r).pid.load(std::memory_order_acquire);
      peers_open_ = peers_open_ && pid != 0;
      const bool other = pid != 0 && pid != getpid();
      peers_.emplace_back(other ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
      if (other && !peers_.back() && errno == ESRCH && slot(r).arrived < arrivals_) {
        throw CommError(fmt::format("{}: rank {} (pid {}) has ended", what, r, pid));
      }
    }
  }
  std::vector<int> missing;
  for (int r = 0; r < world_; ++r) {
    if (slot(r).arrived.load(std::memory_order_acquire) >= arrivals_) continue;
    missing.push_back(r);
    const Fd& fd = peers_[static_cast<size_t>(r)];
    pollfd p{fd.get(), POLLIN, 0};
    if (fd && poll(&p, 1, 0) == 1 && slot(r).arrived.load(std::memory_order_acquire) < arrivals_) {
      throw CommError(fmt::format("{}: rank {} (pid {}) has ended", what, r, slot(r).pid.load()));
    }
  }
  if (missing.empty() || Clock::now() - start < timeout_) return;
  throw CommError(fmt::format("{}: rank {} waited {:.1f} s for rank {}, which is alive but did not come",
                              what, rank_, std::chrono::duration<double>(timeout_).count(),
                              fmt::join(missing, ", ")));
}

void Group::compare(std::string_view what) const {
  const auto& mine = slot(rank_).purpose[arrivals_ % 2];
  for (int r = 0; r < world_; ++r) {
    const auto& theirs = slot(r).purpose[arrivals_ % 2];
    if (theirs.bytes == mine.bytes &&
        std::strncmp(theirs.operation, mine.operation, sizeof(mine.operation)) == 0)
      continue;
    throw CommError(fmt::format(
        "ranks diverged: rank {} is at \"{}\" ({}, {} bytes), rank {} at \"{}\" ({}, {} bytes); every "
        "rank must make the same calls in the same order",
        rank_, what, mine.operation, mine.bytes, r, theirs.what, theirs.operation, theirs.bytes));
  }
}

void Group::barrier(std::string_view what) {
  meet("barrier", 0, what);
}

void Group::all_gather(const void* in, void* out, size_t bytes, std::string_view what) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  size_t done = 0;
  do {
    const size_t n = std::min(kStaging, bytes - done);
    const uint64_t use = uses_++;
    if (n > 0) std::memcpy(staging(rank_, use), from + done, n);
    meet("all_gather", bytes, what);
    for (int r = 0; r < world_ && n > 0; ++r) {
      std::byte* target = to + static_cast<size_t>(r) * bytes + done;
      if (r != rank_) {
        std::memcpy(target, staging(r, use), n);
      } else if (target != from + done) {
        std::memmove(target, from + done, n);
      }
    }
    done += n;
  } while (done < bytes);
}

void Group::broadcast(void* data, size_t bytes, int root, std::string_view what) {
  auto* p = static_cast<std::byte*>(data);
  size_t done = 0;
  do {
    const size_t n = std::min(kStaging, bytes - done);
    const uint64_t use = uses_++;
    if (rank_ == root && n > 0) std::memcpy(staging(rank_, use), p + done, n);
    meet("broadcast", bytes, what);
    if (rank_ != root && n > 0) std::memcpy(p + done, staging(root, use), n);
    done += n;
  } while (done < bytes);
}

void Group::all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                       std::string_view what) {
  const auto world = static_cast<size_t>(world_);
  std::vector<size_t> sizes(world * world);  // of row r: what rank r sends to each
  all_gather(send.data(), sizes.data(), world * sizeof(size_t), what);
  size_t most = 0;
  for (size_t r = 0; r < world; ++r) {
    size_t total = 0;
    for (size_t o = 0; o < world; ++o) total += sizes[r * world + o];
    most = std::max(most, total);
  }
  const auto* from = static_cast<const std::byte*>(in);
  size_t own_total = 0;
  for (const size_t n : send) own_total += n;
  // Window by window over every rank's send buffer; each rank picks what of it is addressed to it.
  for (size_t window = 0; window < most; window += kStaging) {
    const uint64_t use = uses_++;
    if (window < own_total)
      std::memcpy(staging(rank_, use), from + window, std::min(kStaging, own_total - window));
    meet("all_to_all", most, what);
    auto* to = static_cast<std::byte*>(out);
    for (size_t r = 0; r < world; ++r) {
      size_t begin = 0;
      for (size_t o = 0; o < static_cast<size_t>(rank_); ++o) begin += sizes[r * world + o];
      const size_t first = std::max(begin, window), last = std::min(begin + recv[r], window + kStaging);
      if (first < last)
        std::memcpy(to + (first - begin), staging(static_cast<int>(r), use) + (first - window), last - first);
      to += recv[r];
    }
  }
}

std::shared_ptr<SharedSegment> Group::share(size_t bytes, std::string_view what) {
  if (rank_ == 0) {
    const Fd memory = create_memory(bytes);
    const Listener listener = listen_for_peers(world_);
    copy_text(control().listener, kText, listener.name);
    meet("share", bytes, what);
    hand_out(listener, memory.get(), world_ - 1, timeout_);
    auto segment = map_segment(memory, bytes);
    meet("share", bytes, what);
    return segment;
  }
  meet("share", bytes, what);
  const Fd memory = receive_from(control().listener, timeout_);
  auto segment = map_segment(memory, bytes);
  meet("share", bytes, what);
  return segment;
}

std::unique_ptr<Group> Group::channel(std::string_view name) {
  return std::make_unique<Group>(rank_, world_, share(control_bytes(world_), name), timeout_);
}

void Group::abort(std::string_view message) {
  Control& c = control();
  uint32_t none = 0;
  if (!c.aborted.compare_exchange_strong(none, 1)) return;  // the first cause counts
  c.aborted_by = rank_;
  copy_text(c.message, kMessage, message);
  c.aborted.store(2, std::memory_order_release);
  c.event.fetch_add(1);
  futex_wake_all(c.event);
}

}  // namespace aliquot::shm
