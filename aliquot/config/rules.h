// What must hold between keys: contradictions, and what is there but not on this machine.
#pragma once

#include <optional>

#include "aliquot/config/load.h"

namespace aliquot {

/// What the rules need to know of the run.
struct RuleContext {
  bool host_is_device = true;  ///< a CPU build: parameters and optimizer live in host memory anyway
  std::optional<int64_t> param_groups =
      {};  ///< how many parameter groups the optimizer has, where that is known
};

/// Adds to `findings` what contradicts itself in `config`, the loaded file with its autos resolved. A rule
/// about a key that already failed is silent.
void check_rules(const Config& config, const LoadedConfig& loaded, const RuleContext& context,
                 Findings& findings);

}  // namespace aliquot
