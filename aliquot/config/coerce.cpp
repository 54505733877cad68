#include "aliquot/config/coerce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace aliquot::schema {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

template <class T>
std::optional<T> parse(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T out{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  if (text.empty() || stop != end || error != std::errc()) return std::nullopt;
  return out;
}

// Digits with single underscores between them; no fraction and no exponent, as Python's int() reads.
std::optional<int64_t> integer_in(std::string_view text) {
  text = trimmed(text);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_' ||
               std::isdigit(static_cast<unsigned char>(text[i - 1])) == 0) {
      return std::nullopt;
    }
  }
  return parse<int64_t>(digits);
}

std::optional<bool> to_boolean(const json::Value& v) {
  if (v.kind == json::Kind::boolean) return v.boolean;
  if (v.kind == json::Kind::number && (v.number == 0 || v.number == 1)) return v.number == 1;
  if (v.kind != json::Kind::string) return std::nullopt;
  const std::string word = lower(v.text);
  for (const char* yes : {"true", "yes", "on", "1", "t", "y"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "0", "f", "n"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> to_integer(const Key& key, const json::Value& v) {
  if (v.kind == json::Kind::boolean && !key.no_boolean) return v.boolean ? 1 : 0;
  if (v.kind == json::Kind::string) return integer_in(v.text);
  if (v.kind != json::Kind::number) return std::nullopt;
  if (v.integer) return v.integer;
  constexpr double kTooLarge = 9223372036854775808.0;  // 2^63
  if (!(std::abs(v.number) < kTooLarge) || v.number != std::floor(v.number)) return std::nullopt;
  return static_cast<int64_t>(v.number);
}

std::optional<double> to_number(const json::Value& v) {
  std::optional<double> out;
  if (v.kind == json::Kind::number) out = v.number;
  if (v.kind == json::Kind::string) out = parse<double>(trimmed(v.text));
  if (out && !std::isfinite(*out)) out.reset();
  return out;
}

std::optional<std::string> to_dtype(const std::string& text) {
  std::string name = lower(text);
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const char* n : {"fp32", "float32", "float"}) {
    if (name == n) return "fp32";
  }
  for (const char* n : {"fp16", "float16", "half"}) {
    if (name == n) return "fp16";
  }
  for (const char* n : {"bf16", "bfp16", "bfloat16"}) {
    if (name == n) return "bf16";
  }
  return std::nullopt;
}

std::optional<std::string> to_choice(const Key& key, const std::string& text) {
  for (const std::string& c : key.choices) {
    if (c == text || (key.any_case && lower(c) == lower(text))) return c;
  }
  return std::nullopt;
}

std::optional<std::vector<double>> to_numbers(const json::Value& v, const Range& range) {
  std::vector<double> out;
  for (const json::Value& item : v.items) {
    const std::optional<double> x = to_number(item);
    if (!x || !range.contains(*x)) return std::nullopt;
    out.push_back(*x);
  }
  return out;
}

std::optional<std::vector<std::string>> to_texts(const json::Value& v) {
  std::vector<std::string> out;
  for (const json::Value& item : v.items) {
    if (item.kind != json::Kind::string) return std::nullopt;
    out.push_back(item.text);
  }
  return out;
}

template <class T>
std::optional<Scalar> scalar(const std::optional<T>& value) {
  return value ? std::optional<Scalar>(*value) : std::nullopt;
}

template <class T>
std::optional<Scalar> in_range(const std::optional<T>& value, const Range& range) {
  return value && range.contains(static_cast<double>(*value)) ? scalar(value) : std::nullopt;
}

std::string show_range(const Range& r, const char* thing) {
  const bool low = std::isfinite(r.low), high = std::isfinite(r.high);
  if (low && high && r.high_open) return fmt::format("{} from {} to below {}", thing, r.low, r.high);
  if (low && high) return fmt::format("{} from {} to {}", thing, r.low, r.high);
  if (low) return fmt::format("{} {} {}", thing, r.low_open ? "above" : "of at least", r.low);
  return thing;
}

}  // namespace

std::optional<Scalar> coerce(const Key& key, const json::Value& v) {
  using json::Kind;
  switch (key.type) {
    case Type::boolean:
      return scalar(to_boolean(v));
    case Type::integer:
      return in_range(to_integer(key, v), key.range);
    case Type::number:
      return in_range(to_number(v), key.range);
    case Type::text:
      return v.kind == Kind::string ? std::optional<Scalar>(v.text) : std::nullopt;
    case Type::choice:
      return v.kind == Kind::string ? scalar(to_choice(key, v.text)) : std::nullopt;
    case Type::dtype:
      return v.kind == Kind::string ? scalar(to_dtype(v.text)) : std::nullopt;
    case Type::numbers:
      if (v.kind == Kind::list) return v.items.empty() ? std::nullopt : scalar(to_numbers(v, key.range));
      if (const auto one = to_number(v); one && key.range.contains(*one)) {
        return Scalar(std::vector<double>{*one});
      }
      return std::nullopt;
    case Type::pair:
      return v.kind == Kind::list && v.items.size() == 2 ? scalar(to_numbers(v, key.range)) : std::nullopt;
    case Type::texts:
      return v.kind == Kind::list ? scalar(to_texts(v)) : std::nullopt;
    case Type::paths:
      if (v.kind == Kind::string) return Scalar(std::vector<std::string>{v.text});
      return v.kind == Kind::list && !v.items.empty() ? scalar(to_texts(v)) : std::nullopt;
    case Type::block:
      return std::nullopt;
    case Type::anything:
      return Scalar(std::monostate{});
  }
  return std::nullopt;
}

std::string type_name(const Key& key) {
  switch (key.type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return show_range(key.range, "an integer");
    case Type::number:
      return show_range(key.range, "a number");
    case Type::text:
      return "text";
    case Type::choice:
      return fmt::format("one of {}", fmt::join(key.choices, ", "));
    case Type::dtype:
      return "one of fp32, bf16, fp16";
    case Type::numbers:
      return show_range(key.range, "a number") + ", or a list with one per parameter group";
    case Type::pair:
      return fmt::format("a list of two numbers, each {}", show_range(key.range, "a number"));
    case Type::texts:
      return "a list of texts";
    case Type::paths:
      return "text, or a list of texts";
    case Type::block:
      return "an object, { … }";
    case Type::anything:
      return "any value";
  }
  return "?";
}

std::string expected(const Key& key) {
  std::string out = type_name(key);
  if (key.takes_auto) out += ", or \"auto\"";
  if (key.takes_null) out += ", or null";
  return out;
}

bool is_absent(const Key& key, const json::Value& v) {
  const bool infinite = v.kind == json::Kind::number && std::isinf(v.number) && v.number > 0;
  return (v.kind == json::Kind::null && key.takes_null) || (infinite && key.takes_infinity);
}

bool is_off(const json::Value& v) {
  if (v.kind == json::Kind::null) return true;
  if (v.kind == json::Kind::boolean) return !v.boolean;
  if (v.kind != json::Kind::object) return false;
  if (const json::Member* enabled = v.find("enabled")) return to_boolean(enabled->value) == false;
  return std::ranges::all_of(v.members, [](const json::Member& m) { return is_off(m.value); });
}

std::string show(const Scalar& value) {
  if (const auto* v = std::get_if<bool>(&value)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<int64_t>(&value)) return fmt::format("{}", *v);
  if (const auto* v = std::get_if<double>(&value)) return fmt::format("{}", *v);
  if (const auto* v = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *v);
  if (const auto* v = std::get_if<std::vector<double>>(&value)) {
    return fmt::format("[{}]", fmt::join(*v, ", "));
  }
  if (const auto* v = std::get_if<std::vector<std::string>>(&value)) {
    return fmt::format("[\"{}\"]", fmt::join(*v, "\", \""));
  }
  return "null";
}

}  // namespace aliquot::schema
