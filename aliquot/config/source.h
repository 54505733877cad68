// The text of a ds_config.json: from a file, or from the base64 text that DeepSpeed also takes in its place.
#pragma once

#include <cstdint>
#include <string>

namespace aliquot {

/// A ds_config.json of a megabyte is a mistake: another file was named.
inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

struct ConfigSource {
  std::string text;  ///< valid UTF-8 without NUL
  std::string name;  ///< what messages call it: the path, or "<base64>"
};

/// Reads `path`; if there is no such file and it is urlsafe base64 of an object, that object. Throws
/// ConfigError if it is missing, a folder, empty, larger than kMaxConfigBytes, or not text.
ConfigSource read_config_source(const std::string& path);

}  // namespace aliquot
