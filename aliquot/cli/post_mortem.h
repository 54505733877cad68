// Of all ranks that failed, which one failed first by itself, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aliquot/cli/rank_process.h"

namespace aliquot {

class PostMortem {
 public:
  /// Make one before the ranks start: it notes what the kernel has killed so far.
  PostMortem();

  /// Adds a rank that failed, in the order of their ends. `by_us`: our own signal ended it.
  void add(const RankProcess& rank, bool by_us);

  bool any() const { return !failures_.empty(); }
  /// Whether one failed by itself: neither because a peer did nor because we ended it.
  bool has_culprit() const;

  /// The culprit's; of the first failure if there is none.
  int exit_code() const;
  /// The messages that differ, the culprit's last. "rank 1 failed first: killed by SIGKILL, ...".
  std::string text() const;
  void print() const;

 private:
  struct Failure {
    int rank = 0;
    int code = 0;
    bool own = false;
    std::string message;
  };
  std::string describe(const RankProcess& rank) const;
  const Failure& culprit() const;

  std::vector<Failure> failures_;
  int64_t kernel_kills_;
};

/// "SIGSEGV (Segmentation fault)".
std::string name_of_signal(int signal);

}  // namespace aliquot
