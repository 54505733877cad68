// Faults in memory that the pager knows get their cause printed: a raw pointer into a parameter was written
// through, or kept beyond the parameter's release.
//
// A shared segment's parameters are mapped read-only, so such a write is always a fault. A kept pointer is
// one only under ALIQUOT_DEBUG=pager (aliquot/memory/debug.h), where released memory is inaccessible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aliquot::faults {

struct Region {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  std::string name;  ///< what lies there: "parameter h.3.mlp.w (unit 12, rank 1)"
};

/// While it lives, a SIGSEGV inside one of the regions prints its name and the rule on standard error before
/// it takes its course (an earlier handler's, or the process's end).
class Watch {
 public:
  explicit Watch(std::vector<Region> regions);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::unique_ptr<const std::vector<Region>> regions_;
};

/// Whole pages that are accessible while somebody has them open: ranks that are threads share a mapping.
/// Memory never opened is as it was mapped.
void open(const std::byte* pages, int64_t bytes);
void close(const std::byte* pages, int64_t bytes);

}  // namespace aliquot::faults
