// Collectives between ranks of one host through shared memory. Torch-free; ranks may be processes or threads
// of one.
//
// [Note: shared-memory collectives]
// A control segment holds, per rank, an arrival number and what it arrived for, and two staging slots. Every
// collective is a sequence of meetings: a rank writes what others will read, announces its next arrival
// number, and waits until all have announced it. Staging use i takes slot i mod 2: a rank reaches meeting i+1
// only after reading what meeting i showed, so at i+2 the slot is free again and one meeting per chunk is
// enough. For the same reason two places for what a rank came for suffice. At a meeting the ranks compare it
// (operation, root, size, the caller's words), so ranks that diverged are named at their first different
// call, before anything is read. Waiting spins for some microseconds, then sleeps on a futex for at most 100
// ms at a time, looking at the abort flag, the peers' processes and the deadline in between: a dead peer is
// noticed at once, a silent one after the timeout.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/comm/links.h"
#include "aliquot/comm/peers.h"
#include "aliquot/comm/purpose.h"
#include "aliquot/comm/spinner.h"

namespace aliquot::shm {

/// Bytes of a control segment for `world` ranks: half a MiB a rank.
size_t control_bytes(int world);

/// One rank's end. Used by one thread at a time (a second one gets a UsageError). After a CommError every
/// call throws.
class Group {
 public:
  struct Member {
    int rank = 0;
    int world = 1;
    std::chrono::milliseconds timeout;
    std::shared_ptr<const Peers> peers;
  };

  /// `control` is a zero-filled segment of control_bytes(world), mapped by every rank. `root` is the control
  /// segment whose abort flag counts, for channels of another group.
  Group(Member member, std::shared_ptr<SharedSegment> control, Links links,
        std::shared_ptr<SharedSegment> root = nullptr);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Peers that wait for this rank, now or later, are told that it has left.
  ~Group();

  int rank() const { return member_.rank; }
  int size() const { return member_.world; }

  // As in Comm (comm.h).
  void barrier(std::string_view what);
  void all_gather(const void* in, void* out, size_t bytes, std::string_view what);
  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what);
  void broadcast(void* data, size_t bytes, int root, std::string_view what);
  std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what);
  std::unique_ptr<Group> channel(std::string_view name);
  void abort(std::string_view message);

 private:
  using Clock = std::chrono::steady_clock;
  struct Control;
  struct Rank;

  Control& control() const;
  Control& root() const;
  Rank& slot(int rank) const;
  std::byte* staging(int rank, uint64_t use) const;
  bool arrived(int rank) const;
  bool all_arrived() const;

  template <typename Body>
  auto guarded(const Body& body);
  void meet(const Purpose& purpose, std::string_view what);
  void wait_for_all(std::string_view what);
  void check_missing(std::string_view what, Clock::time_point start) const;
  void throw_if_aborted(std::string_view what) const;
  /// What `body` throws, put as the death of a peer where one has died; empty if it does not throw.
  template <typename Body>
  std::string problem_in(const Body& body) const;
  void agree(const Purpose& purpose, std::string_view problem, std::string_view what);
  std::shared_ptr<SharedSegment> share_unguarded(size_t bytes, std::string_view what);

  Member member_;
  std::shared_ptr<SharedSegment> segment_, root_;
  Links links_;
  Spinner spinner_;
  std::atomic_flag busy_;
  std::string failed_;     // the first CommError
  uint64_t arrivals_ = 0;  // meetings so far
  uint64_t uses_ = 0;      // of staging
};

}  // namespace aliquot::shm
