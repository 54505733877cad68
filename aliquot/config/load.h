// ds_config.json -> typed values, every key checked against the schema, every finding with its place.
//
//   LoadedConfig loaded = load_config("ds.json");
//   Resolution r = resolve_config(loaded, {.world_size = 2});    // resolve.h; throws ConfigErrors with all
//   that is wrong train(r.config);
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "aliquot/config/config.h"
#include "aliquot/config/findings.h"
#include "aliquot/config/schema.h"

namespace aliquot {

struct LoadOptions {
  bool lenient = false;  ///< an unknown key is a warning instead of an error
};

/// A key that the file gives, under its canonical path ("zero_optimization.stage3_max_live_parameters").
struct Given {
  json::Position at;
  schema::Scalar value;
};

struct LoadedConfig {
  Config draft;       ///< the file's values over the defaults; keys in `open` hold their defaults
  Findings findings;  ///< errors (not thrown yet), deprecations, keys without effect
  std::map<std::string, Given> given;
  std::map<std::string, json::Position> open;  ///< keys whose value is "auto"
};

/// Reads `path` (a file, or base64 text). Throws ConfigError only if there is nothing to read or its syntax
/// is broken; all other errors are in `findings`, and resolve_config throws them together with its own.
LoadedConfig load_config(const std::string& path, LoadOptions options = {});

/// The same from text; `file` is what messages call it.
LoadedConfig parse_config(std::string_view text, const std::string& file, LoadOptions options = {});

}  // namespace aliquot
