// Collectives between ranks of one host through shared memory. Torch-free; ranks may be processes or threads
// of one.
//
// [Note: shared-memory collectives]
// A control segment holds, per rank, an arrival number and what it arrived for, and two staging slots. Every
// collective is a sequence of meetings: a rank writes what others will read, announces its next arrival
// number, and waits until all have announced it. Staging use i takes slot i mod 2: a rank reaches meeting i+1
// only after reading what meeting i showed, so at i+2 the slot is free again and one meeting per chunk is
// enough. At a meeting the ranks compare what they came for (operation, size); ranks that diverged are named.
// Waiting spins for some microseconds, then sleeps on a futex for at most 100 ms at a time, looking at the
// abort flag, the peers' pidfds and the deadline in between: a dead peer is noticed at once, a silent one
// after the timeout.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/comm/shm_segment.h"

namespace aliquot::shm {

/// Bytes of a control segment for `world` ranks.
size_t control_bytes(int world);

/// One rank's end. Used by one thread at a time.
class Group {
 public:
  /// `control` is a zero-filled segment of control_bytes(world), mapped by every rank.
  Group(int rank, int world, std::shared_ptr<SharedSegment> control, std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return world_; }

  void barrier(std::string_view what);
  void all_gather(const void* in, void* out, size_t bytes, std::string_view what);
  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what);
  void broadcast(void* data, size_t bytes, int root, std::string_view what);
  std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what);
  std::unique_ptr<Group> channel(std::string_view name);
  void abort(std::string_view message);

 private:
  struct Control;
  struct Rank;
  Control& control() const;
  Rank& slot(int rank) const;
  std::byte* staging(int rank, uint64_t use) const;
  void meet(std::string_view operation, size_t bytes, std::string_view what);
  void wait_for_all(std::string_view what);
  void check_alive(std::string_view what, std::chrono::steady_clock::time_point start);
  void compare(std::string_view what) const;
  bool all_arrived() const;

  int rank_, world_;
  std::shared_ptr<SharedSegment> segment_;
  std::chrono::milliseconds timeout_;
  std::vector<Fd> peers_;  // pidfds, empty for threads of this process
  bool peers_open_ = false;
  uint64_t arrivals_ = 0;
  uint64_t uses_ = 0;  // of staging
  int spins_;
};

}  // namespace aliquot::shm
