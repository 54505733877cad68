// A resolved Config as the ds_config.json that gives it again, and what was decided on the way as a table.
#pragma once

#include <string>

#include "aliquot/config/resolve.h"

namespace aliquot {

/// ds_config JSON of every key that is read here, defaults included: loading it gives the same Config.
std::string resolved_json(const Config& config);

/// What each "auto" and each derived size became and by which rule; empty if the file left nothing open.
///
///     auto                                  became     by
///     train_batch_size                      32         derived: 4 × 4 × 2
std::string auto_table(const Resolution& resolution);

/// Warnings, then notes, one a line; empty if there are none.
std::string notes_text(const Resolution& resolution);

/// The JSON value of one key, "zero_optimization.stage"; its default where the Config does not hold that key.
std::string value_text(const Config& config, const std::string& path);

}  // namespace aliquot
