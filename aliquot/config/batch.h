// train_batch_size = micro-batch × accumulation × world: what is missing is derived, and the product must
// hold.
//
// DeepSpeed's rule: missing sizes come from whole division (accumulation 1 where nothing says otherwise),
// then the product is checked. Division that leaves a rest is thus an error, never a smaller batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace aliquot {

struct Batch {
  int64_t train = 0;         ///< samples of one optimizer step over all ranks
  int64_t micro = 0;         ///< samples of one forward on one rank
  int64_t accumulation = 0;  ///< micro-batches of one optimizer step
  bool operator==(const Batch&) const = default;
};

/// One size and who supplied it: "ds.json:3:22", "command line", "derived …".
struct BatchSize {
  int64_t value = 0;
  std::string source;
};

struct BatchRequest {
  std::optional<BatchSize> train = {}, micro = {}, accumulation = {};
  int64_t world = 1;
};

struct BatchAnswer {
  BatchSize train, micro, accumulation;
  Batch sizes() const { return {train.value, micro.value, accumulation.value}; }
};

/// Throws ConfigError with all four numbers, who supplied each, and the nearest settings that hold.
BatchAnswer resolve_batch(const BatchRequest& request);

}  // namespace aliquot
