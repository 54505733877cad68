// Reads JSON as people write it into a ds_config.json, keeping where every value stands.
//
// Accepted beside JSON, since DeepSpeed reads its files as Hjson: `//`, `#` and `/* */` comments, trailing
// commas, a comma left out at the end of a line, names without quotes, a leading `+` or `.`, `1_000`,
// Infinity and NaN. Anything else is a ConfigError "file:line:column: …" that says what was expected.
// Torch-free and bounded: nesting deeper than `kMaxDepth` is refused, and nothing is recursive beyond it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot::json {

/// Deepest nesting of objects and lists; a ds_config.json needs six.
inline constexpr int kMaxDepth = 64;

/// Line and column (in characters) from 1; {0, 0} is nowhere.
struct Position {
  int line = 0, column = 0;
  bool operator==(const Position&) const = default;
};

enum class Kind { null, boolean, number, string, list, object };

/// "null", "a boolean", "a number", "text", "a list", "an object".
const char* name_of(Kind kind);

struct Member;

/// One value and everything below it.
struct Value {
  Kind kind = Kind::null;
  Position at;
  bool boolean = false;
  double number = 0;               ///< a number's value; Infinity and NaN included
  std::optional<int64_t> integer;  ///< set when a number is written without fraction and exponent and fits
  std::string text;                ///< a string's content; a number as it was written
  std::vector<Value> items;        ///< of a list
  std::vector<Member> members;     ///< of an object, in the file's order; a repeated name is kept

  /// The first member of that name, or null.
  const Member* find(std::string_view name) const;
};

struct Member {
  std::string name;
  Position at;  ///< of the name
  Value value;
};

/// One name given twice in one object.
struct Duplicate {
  std::string path;  ///< "zero_optimization.stage"
  Position first, second;
};

struct Document {
  Value root;
  std::vector<Duplicate> duplicates;
  std::optional<Position> missing_comma;  ///< the first place where a comma was left out at a line's end
  std::optional<Position> unquoted_name;  ///< the first name without quotes
};

/// Reads `text`; `file` is what messages call it. Throws ConfigError at the first place that cannot be read.
Document read(std::string_view text, const std::string& file);

/// A value as one line of JSON, cut to about 60 characters, for messages.
std::string show(const Value& value);
/// A name from a file as messages may print it: no control characters, cut to about 60 characters.
std::string printable(std::string_view text);

}  // namespace aliquot::json
