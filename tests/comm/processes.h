// Ranks as processes forked from the test, connected by shared memory without a store.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "aliquot/comm/comm.h"

namespace aliquot::test {

class Processes {
 public:
  /// What a rank's body returns, or the message of what it throws, is its last line.
  using Body = std::function<std::string(const Comm&)>;

  /// Forks `world` ranks. Call it while this process has one thread.
  Processes(int world, std::chrono::milliseconds timeout, const Body& body);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  /// Waits until every rank has a Comm.
  void wait_until_connected() const;
  void signal(int rank, int number) const;
  /// Waits for the end of `rank`: its last line, or "signal 9".
  std::string result(int rank);

 private:
  struct Shared;
  struct Rank {
    pid_t pid = 0;
    int output = -1;
    std::string result;
    bool ended = false;
  };

  Shared* shared_;
  std::vector<Rank> ranks_;
};

}  // namespace aliquot::test
