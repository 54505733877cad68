#include "aliquot/comm/shm_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>
#include <utility>

#include "aliquot/comm/exchange_sizes.h"
#include "aliquot/error.h"

namespace aliquot::shm {

namespace {

using namespace std::chrono_literals;

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Two slots of this per rank: both fit a second-level cache, and a meeting costs little beside copying one.
constexpr size_t kStaging = size_t{256} << 10;
constexpr size_t kMessage = 2048;
constexpr std::chrono::milliseconds kLongestSleep = 100ms;
// A rank that left while its error unwinds may be about to say why.
constexpr std::chrono::milliseconds kLastWords = 1000ms;

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

constexpr size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Not FUTEX_PRIVATE: the waiters may be other processes.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds most) {
  const timespec time{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void copy_text(char* to, size_t size, std::string_view text) {
  const size_t n = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

size_t sum(std::span<const size_t> sizes) {
  size_t total = 0;
  for (const size_t n : sizes) total += n;
  return total;
}

}  // namespace

// Aligned so that a rank that spins on `arrived` is not disturbed by what its owner writes beside it.
struct Group::Rank {
  alignas(kLine) std::atomic<uint64_t> arrived;
  std::atomic<uint32_t> left;
  alignas(kLine) Purpose purpose[2];  // by arrival modulo 2
};

struct Group::Control {
  alignas(kLine) std::atomic<uint32_t> event;  // counts arrivals; waiters sleep on it
  std::atomic<uint32_t> sleepers;
  enum Aborted : uint32_t { no, being_written, readable };
  alignas(kLine) std::atomic<uint32_t> aborted;
  int32_t aborted_by;
  char message[kMessage];

  void announce() {
    event.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(event);
  }
};

namespace {
size_t staging_begin(int world, size_t rank_bytes) {
  return kPage + round_up(static_cast<size_t>(world) * rank_bytes, kPage);
}
constexpr size_t kRankBytes = 512;
}  // namespace

size_t control_bytes(int world) {
  return staging_begin(world, kRankBytes) + static_cast<size_t>(world) * 2 * kStaging;
}

Group::Group(Member member, std::shared_ptr<SharedSegment> control_segment, Links links,
             std::shared_ptr<SharedSegment> root)
    : member_(std::move(member)),
      segment_(std::move(control_segment)),
      root_(root ? std::move(root) : segment_),
      links_(std::move(links)),
      spinner_(member_.world) {
  static_assert(sizeof(Control) <= kPage && sizeof(Rank) <= kRankBytes);
}

Group::~Group() {
  slot(rank()).left.store(1, std::memory_order_release);
  control().announce();
}

Group::Control& Group::control() const {
  return *reinterpret_cast<Control*>(segment_->write());
}
Group::Control& Group::root() const {
  return *reinterpret_cast<Control*>(root_->write());
}

Group::Rank& Group::slot(int rank) const {
  return *reinterpret_cast<Rank*>(segment_->write() + kPage + static_cast<size_t>(rank) * kRankBytes);
}

std::byte* Group::staging(int rank, uint64_t use) const {
  return segment_->write() + staging_begin(size(), kRankBytes) +
         (static_cast<size_t>(rank) * 2 + use % 2) * kStaging;
}

bool Group::arrived(int rank) const {
  return slot(rank).arrived.load(std::memory_order_acquire) >= arrivals_;
}

bool Group::all_arrived() const {
  for (int r = 0; r < size(); ++r) {
    if (!arrived(r)) return false;
  }
  return true;
}

template <typename Body>
auto Group::guarded(const Body& body) {
  if (busy_.test_and_set(std::memory_order_acquire)) {
    throw UsageError("two threads use one Comm at the same time; give one of them its own channel()");
  }
  struct Clear {
    std::atomic_flag& flag;
    ~Clear() { flag.clear(std::memory_order_release); }
  } const clear{busy_};
  if (!failed_.empty()) throw CommError(fmt::format("the ranks have lost each other before: {}", failed_));
  try {
    return body();
  } catch (const CommError& e) {
    failed_ = e.what();
    throw;
  }
}

void Group::meet(const Purpose& purpose, std::string_view what) {
  ++arrivals_;
  Rank& mine = slot(rank());
  mine.purpose[arrivals_ % 2] = purpose;
  mine.arrived.store(arrivals_, std::memory_order_seq_cst);
  control().announce();
  wait_for_all(what);
  for (int r = 0; r < size(); ++r) check_same(arrivals_, rank(), purpose, r, slot(r).purpose[arrivals_ % 2]);
}

void Group::wait_for_all(std::string_view what) {
  if (spinner_.wait([this] { return all_arrived(); })) return;
  const auto start = Clock::now();
  Control& c = control();
  while (true) {
    const uint32_t seen = c.event.load(std::memory_order_seq_cst);
    if (all_arrived()) return;
    check_missing(what, start);
    const auto left = std::max(member_.timeout - (Clock::now() - start), Clock::duration(1ms));
    c.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(c.event, seen, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
    c.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Group::check_missing(std::string_view what, Clock::time_point start) const {
  throw_if_aborted(what);
  const auto waited = Clock::now() - start;
  std::vector<std::string> missing;
  for (int r = 0; r < size(); ++r) {
    if (arrived(r)) continue;
    missing.push_back(member_.peers->name(r));
    const bool died = member_.peers->ended(r);
    const bool left = slot(r).left.load(std::memory_order_acquire) != 0 && waited >= kLastWords;
    if (!died && !left) continue;
    // It may have come, or said why, just before.
    throw_if_aborted(what);
    if (arrived(r)) continue;
    throw CommError(fmt::format("{}: {} {}; rank {} waited for it {:.1f} s", what, missing.back(),
                                died ? "died" : "has closed its connection", rank(), seconds(waited)));
  }
  if (missing.empty() || waited < member_.timeout) return;
  throw CommError(
      fmt::format("{}: rank {} waited {:.1f} s for {}, alive but silent (stopped, or busy elsewhere?)", what,
                  rank(), seconds(waited), fmt::join(missing, ", ")));
}

void Group::throw_if_aborted(std::string_view what) const {
  if (root().aborted.load(std::memory_order_acquire) != Control::readable) return;
  throw CommError(fmt::format("{}: rank {} failed: {}", what, root().aborted_by, root().message));
}

void Group::barrier(std::string_view what) {
  guarded([&] { meet({Op::barrier, 0, 0, what}, what); });
}

void Group::all_gather(const void* in, void* out, size_t bytes, std::string_view what) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  guarded([&] {
    size_t done = 0;
    do {
      const size_t n = std::min(kStaging, bytes - done);
      const uint64_t use = uses_++;
      copy_bytes(staging(rank(), use), from + done, n);
      meet({Op::all_gather, 0, bytes, what}, what);
      for (int r = 0; r < size(); ++r) {
        std::byte* target = to + static_cast<size_t>(r) * bytes + done;
        if (r != rank()) {
          copy_bytes(target, staging(r, use), n);
        } else if (target != from + done) {
          copy_bytes(target, from + done, n);
        }
      }
      done += n;
    } while (done < bytes);
  });
}

void Group::broadcast(void* data, size_t bytes, int root, std::string_view what) {
  if (root < 0 || root >= size()) {
    throw UsageError(fmt::format("{}: broadcast from rank {}, expected 0 to {}", what, root, size() - 1));
  }
  auto* p = static_cast<std::byte*>(data);
  guarded([&] {
    size_t done = 0;
    do {
      const size_t n = std::min(kStaging, bytes - done);
      const uint64_t use = uses_++;
      if (rank() == root) copy_bytes(staging(rank(), use), p + done, n);
      meet({Op::broadcast, root, bytes, what}, what);
      if (rank() != root) copy_bytes(p + done, staging(root, use), n);
      done += n;
    } while (done < bytes);
  });
}

// Every slot begins with its rank's sizes, so a small exchange takes one meeting. Larger ones go on window by
// window over every rank's send buffer; each rank picks what of it is addressed to it.
void Group::all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                       std::string_view what) {
  const auto world = static_cast<size_t>(size());
  if (send.size() != world || recv.size() != world) {
    throw UsageError(fmt::format("{}: all_to_all with {} and {} sizes between {} ranks", what, send.size(),
                                 recv.size(), world));
  }
  const auto* from = static_cast<const std::byte*>(in);
  const size_t own_total = sum(send);
  guarded([&] {
    ExchangeSizes sizes(world);
    const size_t capacity = kStaging - sizes.row_bytes();
    size_t longest = 0;
    for (size_t window = 0; window == 0 || window < longest; window += capacity) {
      const uint64_t use = uses_++;
      std::byte* own = staging(rank(), use);
      ExchangeSizes::write_row(own, send, recv);
      if (window < own_total)
        copy_bytes(own + sizes.row_bytes(), from + window, std::min(capacity, own_total - window));
      meet({Op::all_to_all, 0, longest, what}, what);
      if (window == 0) {
        for (size_t r = 0; r < world; ++r) sizes.read_row(r, staging(static_cast<int>(r), use));
        sizes.check(what);
        longest = sizes.longest();
      }
      auto* to = static_cast<std::byte*>(out);
      for (size_t r = 0; r < world; to += recv[r++]) {
        const size_t begin = sizes.offset(r, static_cast<size_t>(rank()));
        const size_t first = std::max(begin, window), last = std::min(begin + recv[r], window + capacity);
        const std::byte* theirs = staging(static_cast<int>(r), use) + sizes.row_bytes();
        if (first < last) std::memcpy(to + (first - begin), theirs + (first - window), last - first);
      }
    }
  });
}

template <typename Body>
std::string Group::problem_in(const Body& body) const {
  try {
    body();
    return "";
  } catch (const Error& e) {
    // A socket closes a moment before its process counts as ended.
    for (int i = 0; i < 100; ++i) {
      for (int r = 0; r < size(); ++r) {
        if (member_.peers->ended(r)) return fmt::format("{} died", member_.peers->name(r));
      }
      std::this_thread::sleep_for(1ms);
    }
    return e.what();
  }
}

// Whether all ranks could do their part: all throw if one could not.
void Group::agree(const Purpose& purpose, std::string_view problem, std::string_view what) {
  const uint64_t use = uses_++;
  copy_text(reinterpret_cast<char*>(staging(rank(), use)), kMessage, problem);
  meet(purpose, what);
  for (int r = 0; r < size(); ++r) {
    const char* theirs = reinterpret_cast<const char*>(staging(r, use));
    if (*theirs != 0) throw CommError(fmt::format("{}: rank {}: {}", what, r, theirs));
  }
}

std::shared_ptr<SharedSegment> Group::share_unguarded(size_t bytes, std::string_view what) {
  const Purpose purpose(Op::share, 0, bytes, what);
  Fd memory;
  std::string problem;
  if (rank() == 0) {
    problem = problem_in([&] {
      memory = create_memory(bytes);
      links_.give(memory);
    });
  }
  agree(purpose, problem, what);
  std::shared_ptr<SharedSegment> segment;
  problem = problem_in([&] {
    if (rank() != 0) memory = links_.take();
    const auto world = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
    const size_t part = round_up(bytes / world + 1, kPage);
    reserve(memory, std::min(bytes, me * part), std::min(bytes, (me + 1) * part));
    segment = links_.map(memory, bytes);
  });
  agree(purpose, problem, what);
  return segment;
}

std::shared_ptr<SharedSegment> Group::share(size_t bytes, std::string_view what) {
  return guarded([&] { return share_unguarded(bytes, what); });
}

std::unique_ptr<Group> Group::channel(std::string_view name) {
  return guarded([&] {
    auto control_segment = share_unguarded(control_bytes(size()), name);
    Links links;
    std::string problem;
    if (rank() == 0) problem = problem_in([&] { links = links_.give_links(); });
    agree({Op::channel, 0, 0, name}, problem, name);
    if (rank() != 0) problem = problem_in([&] { links = links_.take_links(); });
    agree({Op::channel, 0, 0, name}, problem, name);
    return std::make_unique<Group>(member_, std::move(control_segment), std::move(links), root_);
  });
}

void Group::abort(std::string_view message) {
  Control& c = root();
  uint32_t none = Control::no;
  // The first cause counts.
  if (!c.aborted.compare_exchange_strong(none, Control::being_written)) return;
  c.aborted_by = rank();
  copy_text(c.message, kMessage, message);
  c.aborted.store(Control::readable, std::memory_order_release);
  c.announce();
}

}  // namespace aliquot::shm
