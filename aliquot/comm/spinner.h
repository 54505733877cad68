// Waiting for a moment without sleeping, as long as that pays. Torch-free.
#pragma once

#include <sched.h>

#include <algorithm>

namespace aliquot::shm {

/// Spins up to a budget that grows while what was waited for came within it, and shrinks while it did not:
/// peers that are ready meet in under a microsecond, and a peer that computes is not robbed of its core.
class Spinner {
 public:
  /// `parties` that wait for each other. With fewer cores than parties spinning only keeps others from
  /// coming.
  explicit Spinner(int parties) : most_(cores() < parties ? 0 : kMost), budget_(most_) {}

  /// Whether `done()` became true within the budget.
  template <typename Done>
  bool wait(const Done& done) {
    if (done()) return true;
    for (int i = 0; i < budget_; ++i) {
      relax();
      if (!done()) continue;
      budget_ = std::min(most_, budget_ + most_ / 8);
      return true;
    }
    budget_ = std::max(most_ / 64, budget_ - budget_ / 4);
    return false;
  }

 private:
  // About 100 µs where a pause takes 40 ns: what putting a thread to sleep and waking it costs on a virtual
  // machine.
  static constexpr int kMost = 2500;

  static int cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  }

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  int most_;
  int budget_;
};

}  // namespace aliquot::shm
