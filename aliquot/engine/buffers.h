// Buffers (running statistics, counters) over ranks: rank 0's are everybody's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/engine/parameters.h"

namespace aliquot {

/// Makes the other ranks' buffers equal rank 0's, as DistributedDataParallel's broadcast_buffers does, though
/// once a step and not before every forward: between two steps each rank's statistics are its own data's.
/// Every buffer keeps its dtype.
class BufferSync {
 public:
  /// Throws UsageError for a buffer that is not on the CPU.
  explicit BufferSync(std::vector<NamedTensor> buffers);

  /// Names, shapes and dtypes, for comparing ranks.
  std::string description() const;
  /// Collective. Sends nothing but one byte while rank 0's buffers are as they were.
  void broadcast(const Comm& comm);

 private:
  bool changed() const;
  int64_t total_bytes() const;
  void pack(std::vector<std::byte>& bytes) const;
  void unpack(const std::vector<std::byte>& bytes) const;
  std::vector<int64_t> versions() const;

  std::vector<NamedTensor> buffers_;
  std::optional<std::vector<int64_t>> sent_;  // versions
};

}  // namespace aliquot
