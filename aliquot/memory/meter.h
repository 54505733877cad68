// Every byte counted: how much memory this rank holds, by kind and place, now and at its peak.
//
// The engine's large memory comes from Buffer (buffer.h), which reports here. Small objects (tables,
// messages), LibTorch's activations and library code are not seen.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace aliquot {

/// What a piece of memory is for.
enum class Kind {
  params,    ///< parameters in compute dtype: the whole where replicated, the own slice where sharded
  grads,     ///< accumulated gradients: the whole where replicated, the own slice where sharded
  master,    ///< fp32 master weights of 16-bit parameters
  moments,   ///< optimizer states
  gathered,  ///< units of sharded parameters while they are gathered: their full bytes, zero-copy or not
  buckets,   ///< gradients on their way to their owners
  staging,   ///< everything that is copied through: publishing, accessors, GatheredParameters
};
inline constexpr int kKinds = 7;
std::string_view name_of(Kind kind);

enum class Place { device, host, nvme };
inline constexpr int kPlaces = 3;
std::string_view name_of(Place place);

/// Counters of one rank. Thread-safe.
class Meter {
 public:
  void add(Kind kind, Place place, int64_t bytes);
  void remove(Kind kind, Place place, int64_t bytes) { add(kind, place, -bytes); }

  int64_t current(Kind kind, Place place) const;
  int64_t peak(Kind kind, Place place) const;
  /// Over all kinds. The peak is that of the sum, not the sum of the peaks.
  int64_t current(Place place) const;
  int64_t peak(Place place) const;

  /// From here on peaks count from the current values.
  void reset_peaks();

 private:
  struct Count {
    std::atomic<int64_t> now{0}, peak{0};
    void add(int64_t bytes);
  };
  std::array<std::array<Count, kKinds>, kPlaces> counts_;
  std::array<Count, kPlaces> totals_;
};

}  // namespace aliquot
