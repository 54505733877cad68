// A scope in which parameters are whole, on every rank, and may be read by pointer and written.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/engine/engine.h"
#include "aliquot/memory/buffer.h"

namespace aliquot {

/// Collective to open and to close. Inside, the named parameters lie in private memory of each rank.
///
/// What was written takes effect at `close()`, on all ranks alike, masters included: with a `modifier_rank`,
/// that rank's bytes; without one, every rank must have written equal bytes. Parameters that nobody changed
/// are left alone.
class GatheredParameters {
 public:
  /// Empty `names`: all parameters. Throws UsageError for an unknown name or a modifier_rank outside the
  /// world.
  GatheredParameters(Engine& engine, const std::vector<std::string>& names = {},
                     std::optional<int> modifier_rank = std::nullopt);
  /// Closes if `close` was not called, dropping what was written if an exception is under way; an error is
  /// logged.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  /// Publishes what was written. Throws UsageError naming the first parameter that ranks wrote differently,
  /// on every rank; then nothing of it is changed. The scope is over in any case.
  void close();

 private:
  struct Entry {
    int param;
    Buffer memory;
    uint64_t before;  // hash of the bytes
  };
  void end_scope();
  void publish();

  EngineState& state_;
  std::optional<int> modifier_rank_;
  std::vector<Entry> entries_;
  int exceptions_;
  bool open_ = true;
};

}  // namespace aliquot
