// Milliseconds by phase of a step.
//
// A phase is timed where it happens, by whichever thread; gather and reduce run inside or beside forward and
// backward, so the phases of a step do not add up to its total. Header only and free of dependencies: the
// engine's threads use it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace aliquot {

enum class Phase {
  data,  ///< filling a batch
  forward,
  backward,  ///< to the return of the outermost backward, gradients on their way included
  gather,    ///< bringing released parameters together
  reduce,    ///< gradients to their owners
  update,    ///< norm, clipping and optimizer
  publish,   ///< new parameters to all ranks
  eval       ///< the held-out part
};
inline constexpr int kPhases = 8;

constexpr std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames{"data",   "forward", "backward", "gather",
                                                         "reduce", "update",  "publish",  "eval"};
  return kNames[static_cast<size_t>(phase)];
}

/// Accumulates the times of one step; safe to use from several threads. A measurement costs two clock reads
/// and an atomic addition, some 60 ns.
class PhaseTimers {
 public:
  using Clock = std::chrono::steady_clock;

  /// Times its own lifetime.
  class Scope {
   public:
    Scope(PhaseTimers& timers, Phase phase) : timers_(timers), phase_(phase), begin_(Clock::now()) {}
    ~Scope() { timers_.add(phase_, Clock::now() - begin_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimers& timers_;
    Phase phase_;
    Clock::time_point begin_;
  };

  void add(Phase phase, Clock::duration time) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    ns_[static_cast<size_t>(phase)].fetch_add(ns, std::memory_order_relaxed);
  }

  /// The milliseconds of each phase that took any, and "total", the time since the last take() or the
  /// construction; all begin again at zero. Measurements still running count in the step in which they end.
  std::map<std::string, double> take() {
    std::map<std::string, double> ms;
    for (int p = 0; p < kPhases; ++p)
      if (const int64_t ns = ns_[static_cast<size_t>(p)].exchange(0, std::memory_order_relaxed); ns > 0)
        ms[std::string(name_of(static_cast<Phase>(p)))] = static_cast<double>(ns) / 1e6;
    const auto now = Clock::now();
    ms["total"] = std::chrono::duration<double, std::milli>(now - begin_).count();
    begin_ = now;
    return ms;
  }

 private:
  std::array<std::atomic<int64_t>, kPhases> ns_{};
  Clock::time_point begin_ = Clock::now();
};

}  // namespace aliquot
