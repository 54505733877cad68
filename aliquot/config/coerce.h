// DeepSpeed's coercions: which JSON values stand for a boolean, an integer, a number.
//
// Integers: 5e8, 2.0, "500000000", "1_000", true (1). Numbers: also "0.5". Booleans: true, 1, 0.0, "yes",
// "off", "True", … DeepSpeed takes them in its typed blocks; here they hold everywhere.
#pragma once

#include <optional>
#include <string>

#include "aliquot/config/json_reader.h"
#include "aliquot/config/schema.h"

namespace aliquot::schema {

/// The value as the key's type, or nothing if it is none, or out of the key's range.
std::optional<Scalar> coerce(const Key& key, const json::Value& value);

/// Whether the value says that the key is as if not there: null, or Infinity where it means "never".
bool is_absent(const Key& key, const json::Value& value);

/// What the key expects, for messages: "an integer of at least 1", "one of none, cpu, nvme".
std::string expected(const Key& key);
/// The key's type and range in few words, for docs.
std::string type_name(const Key& key);

/// Whether a block that is refused when on is off: null, false, {}, or `enabled` is false in every part.
bool is_off(const json::Value& value);

/// A coerced value as JSON text.
std::string show(const Scalar& value);

}  // namespace aliquot::schema
