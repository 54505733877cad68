// Every key that a ds_config.json may hold: its type, its default, and what becomes of it here.
//
// A key works, has no effect here, or is refused with a reason; nothing is ignored silently. The tables are
// data: the loader (load.h) walks a file against them, docs/config.md prints them. They lie in
// schema_top.cpp, schema_zero.cpp, schema_optimizer.cpp, schema_scheduler.cpp and schema_refused.cpp.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aliquot/config/config.h"

namespace aliquot::schema {

enum class Support {
  works,
  no_effect,  ///< accepted: what it asks for is always so here, or concerns something that is not here
  refused,    ///< an error unless the value asks for nothing
  off,        ///< belongs to a block that is refused while it is on: checked, and not read
};

enum class Type {
  boolean,
  integer,
  number,
  text,
  choice,   ///< one of `choices`
  dtype,    ///< fp32, bf16, fp16 and the other names DeepSpeed takes
  numbers,  ///< one number, or a list with one per parameter group
  pair,     ///< a list of exactly two numbers
  texts,    ///< a list of texts
  paths,    ///< a text or a list of texts
  block,    ///< an object with a section of its own
  anything,
};

/// Which numbers are allowed; the ends count unless open.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  bool contains(double x) const;
};
constexpr Range at_least(double low) {
  return {.low = low};
}
constexpr Range above(double low) {
  return {.low = low, .low_open = true};
}
constexpr Range between(double low, double high) {
  return {.low = low, .high = high};
}
/// 0 ≤ x < 1: what decays geometrically.
constexpr Range fraction() {
  return {.low = 0, .high = 1, .high_open = true};
}

/// A value of a key after DeepSpeed's coercions; monostate where only its presence is known. A dtype is its
/// canonical name.
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                            std::vector<std::string>>;
using Store = std::function<void(Config&, const Scalar&)>;

struct Key {
  std::string name;
  Type type = Type::anything;
  std::string fallback;  ///< the value without the key, as docs/config.md shows it
  std::string meaning;   ///< what it does here, why it has no effect, or why it is not supported
  Store store;           ///< empty where nothing reads the value
  Support support = Support::works;
  Range range;
  std::vector<std::string> choices;
  bool any_case = false;               ///< choices are compared without case
  bool takes_auto = false;             ///< "auto" stays open until resolve_config
  bool takes_null = false;             ///< null is as if the key were not there
  bool takes_infinity = false;         ///< and so is Infinity
  bool no_boolean = false;             ///< an integer that true and false do not stand for
  std::vector<std::string> aliases;    ///< other names, as good as this one
  std::vector<std::string> old_names;  ///< deprecated names
  std::string replaced_by;             ///< this key is deprecated: the path of the key to write instead
  std::vector<Scalar> asks_nothing;    ///< refused keys: the values that are accepted all the same

  Key in(Range r) &&;
  Key or_auto() &&;
  Key or_null() &&;
  Key or_infinity() &&;
  Key not_boolean() &&;
  Key in_any_case() &&;
  Key also(std::vector<std::string> names) &&;
  Key once(std::vector<std::string> names) &&;
  Key instead_use(std::string path) &&;
};

// ---- rows: name, default, meaning, where it goes
// ---------------------------------------------------------------------

Key boolean(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key integer(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key number(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key numbers(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key pair(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key text(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key texts(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key paths(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key dtype(std::string name, std::string fallback, std::string meaning = "", Store store = {});
Key choice(std::string name, std::vector<std::string> choices, std::string fallback, std::string meaning = "",
           Store store = {});
/// `store` is called, with nothing, where the block is there.
Key block(std::string name, std::string meaning, Store store = {});
Key anything(std::string name, std::string fallback, std::string meaning = "");

/// The key is accepted and noted: it has no effect here because …
Key no_effect(Key key, std::string because);
/// The key belongs to a block that is refused while it is on.
Key off(Key key);
/// The key is an error, "not supported: because", unless its value is one of `asks_nothing`.
Key refused(Key key, std::string because, std::vector<Scalar> asks_nothing);

// ---- where a value goes
// ----------------------------------------------------------------------------------------------

/// Writes a coerced value into a field of a Config; null leaves the field as it is (an optional becomes
/// empty).
void assign(bool& field, const Scalar& value);
void assign(int& field, const Scalar& value);
void assign(int64_t& field, const Scalar& value);
void assign(double& field, const Scalar& value);
void assign(std::string& field, const Scalar& value);
void assign(std::vector<double>& field, const Scalar& value);
void assign(std::vector<std::string>& field, const Scalar& value);
void assign(DType& field, const Scalar& value);
void assign(OffloadDevice& field, const Scalar& value);
void assign(AllreduceOp& field, const Scalar& value);
void assign(WarmupType& field, const Scalar& value);
template <class T>
void assign(std::optional<T>& field, const Scalar& value) {
  assign(field.emplace(), value);
}

template <class T>
Store to(T Config::*field) {
  return [=](Config& c, const Scalar& v) { assign(c.*field, v); };
}
template <class Part, class T>
Store to(Part Config::*part, T Part::*field) {
  return [=](Config& c, const Scalar& v) { assign(c.*part.*field, v); };
}
template <class Part, class Inner, class T>
Store to(Part Config::*part, Inner Part::*inner, T Inner::*field) {
  return [=](Config& c, const Scalar& v) { assign(c.*part.*inner.*field, v); };
}

// ---- sections
// --------------------------------------------------------------------------------------------------------

/// The keys of one object of the file.
struct Section {
  std::string path;  ///< "" for the file itself, "zero_optimization.offload_param", "optimizer.params", …
  std::vector<std::string> types;  ///< of params: the optimizers or schedulers whose parameters these are
  std::vector<Key> keys;

  /// By name, alias or old name; null if there is none.
  const Key* find(std::string_view name) const;
};

/// The fallback of a key that must be there.
inline constexpr std::string_view kNeeded = "needed";

/// All sections, the file itself first.
const std::vector<Section>& sections();
/// The section of a block, which must exist; "optimizer.params" and "scheduler.params" have one per type
/// (below).
const Section& section(std::string_view path);
const Section& optimizer_params(OptimizerKind kind);
const Section& scheduler_params(SchedulerKind kind);

std::string join(std::string_view section, std::string_view key);
/// The key of a path, "zero_optimization.stage"; null if there is none. Of params, the first type's that has
/// it.
const Key* key_at(std::string_view path);

/// The optimizer of that name, as DeepSpeed compares it: its own without case, torch's `SGD` exactly.
std::optional<OptimizerKind> optimizer_named(const std::string& type);
std::optional<SchedulerKind> scheduler_named(const std::string& type);
/// What to say of an optimizer or scheduler type that is neither of these: why it is refused, or the nearest
/// name.
std::string about_optimizer(const std::string& type);
std::string about_scheduler(const std::string& type);
/// An optimizer's values without any parameter given.
OptimizerConfig optimizer_defaults(OptimizerKind kind);

/// What a person should write instead of an unknown `name` in `section`: where that key belongs, or the
/// nearest one. Empty if nothing is near.
std::string suggestion(const Section& section, std::string_view name);
/// The nearest of `candidates` within a third of the name's length; empty if none is.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// The tables, one function a file.
std::vector<Section> top_sections();
std::vector<Section> zero_sections();
std::vector<Section> optimizer_sections();
std::vector<Section> scheduler_sections();
std::vector<Section> refused_sections();
std::vector<Key> refused_top_keys();

}  // namespace aliquot::schema
