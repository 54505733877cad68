// The last step from a file to a Config: what depends on the run.
//
// "auto" becomes a value by the rules in docs/config.md, batch sizes are derived once the world size is
// known, rules between keys are checked, and everything that is wrong with the file is thrown together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aliquot/config/load.h"

namespace aliquot {

/// What the file need not say because the run knows it. A value given both here and in the file must be the
/// same one: neither is preferred silently. total_steps and warmup_steps resolve "auto" only (a run may be
/// shorter than its schedule).
struct RunFacts {
  int world_size = 1;
  std::optional<int64_t> hidden_size = {};  ///< of the model, for bucket sizes
  std::optional<int64_t> train_batch = {}, micro_batch = {}, accumulation = {};
  std::optional<double> lr = {}, weight_decay = {}, gradient_clipping = {};
  std::optional<int64_t> total_steps = {}, warmup_steps = {};
  bool activation_checkpointing = false;     ///< on, also where the file has no such block
  std::optional<int64_t> param_groups = {};  ///< of the optimizer; lists of rates must have as many values
  bool host_is_device = true;  ///< a CPU build: parameters and optimizer live in host memory anyway
};

/// One value that the file left to us.
struct AutoValue {
  std::string path;   ///< "zero_optimization.reduce_bucket_size"
  std::string value;  ///< as JSON
  std::string rule;   ///< "hidden² (hidden size 4096)"
};

struct Resolution {
  Config config;
  std::vector<AutoValue>
      autos;  ///< each "auto" of the file and each size that was derived, in the schema's order
  std::vector<std::string> warnings, notes;
};

/// Throws ConfigErrors with all errors of the file and of its resolution.
Resolution resolve_config(const LoadedConfig& loaded, const RunFacts& facts = {});

/// For a Config made by hand: checks it by the same rules and derives missing batch sizes (those that are 0).
Config checked(const Config& config, int world_size);

}  // namespace aliquot
