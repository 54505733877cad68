#include "aliquot/config/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "aliquot/error.h"

namespace aliquot::json {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_char(char c) {
  return is_name_start(c) || is_digit(c) || c == '-' || c == '.';
}
bool is_number_char(char c) {
  return is_name_char(c) || c == '+';
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
            static_cast<char>(0x80 | (code & 0x3F))};
  } else {
    out += {static_cast<char>(0xF0 | (code >> 18)), static_cast<char>(0x80 | ((code >> 12) & 0x3F)),
            static_cast<char>(0x80 | ((code >> 6) & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
  }
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  Document read() {
    skip_blank();
    if (done()) fail("the file holds no value; expected an object, { … }");
    document_.root = value(0);
    skip_blank();
    if (!done())
      fail(fmt::format("expected the end of the file after the closing bracket, found {}", found()));
    return std::move(document_);
  }

 private:
  // ---- characters ----

  bool done() const { return next_ == text_.size(); }
  char peek(size_t ahead = 0) const { return next_ + ahead < text_.size() ? text_[next_ + ahead] : '\0'; }

  char take() {
    const char c = text_[next_++];
    if (c == '\n') {
      ++at_.line;
      at_.column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // not the middle of a UTF-8 character
      ++at_.column;
    }
    return c;
  }

  [[noreturn]] void fail(const std::string& what) const { fail(at_, what); }
  [[noreturn]] void fail(Position at, const std::string& what) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", file_, at.line, at.column, what));
  }

  std::string found() const {
    if (done()) return "the end of the file";
    const auto c = static_cast<unsigned char>(peek());
    if (c < 0x20 || c == 0x7F) return fmt::format("the control character 0x{:02x}", c);
    size_t length = 1;
    while ((static_cast<unsigned char>(peek(length)) & 0xC0) == 0x80) ++length;
    return fmt::format("'{}'", text_.substr(next_, length));
  }

  // Blanks and comments; true if a line ended among them.
  bool skip_blank() {
    bool line_ended = false;
    while (!done()) {
      const char c = peek();
      if (c == '\n') line_ended = true;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        take();
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        while (!done() && peek() != '\n') take();
      } else if (c == '/' && peek(1) == '*') {
        line_ended = skip_block_comment() || line_ended;
      } else {
        break;
      }
    }
    return line_ended;
  }

  bool skip_block_comment() {
    const Position start = at_;
    bool line_ended = false;
    take();
    take();
    while (!(peek() == '*' && peek(1) == '/')) {
      if (done()) fail(start, "this comment is never closed; expected */");
      line_ended = take() == '\n' || line_ended;
    }
    take();
    take();
    return line_ended;
  }

  // ---- values ----

  Value value(int depth) {
    Value v;
    v.at = at_;
    const char c = peek();
    if (c == '{') {
      object(v, depth);
    } else if (c == '[') {
      list(v, depth);
    } else if (c == '"') {
      v.kind = Kind::string;
      v.text = string();
    } else if (is_digit(c) || c == '-' || c == '+' || c == '.') {
      number(v);
    } else if (is_name_start(c)) {
      word(v);
    } else if (c == '\'') {
      fail("text stands in double quotes, \"…\"");
    } else {
      fail(fmt::format("expected a value (text in quotes, a number, true, false, null, {{ or [), found {}",
                       found()));
    }
    return v;
  }

  void enter(Value& v, Kind kind, int depth) {
    if (depth == kMaxDepth) fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    v.kind = kind;
    take();
  }

  // After a member or an item: true if another one follows; the closing bracket is taken otherwise.
  bool another(char close, Position open) {
    const Position end = at_;
    const bool line_ended = skip_blank();
    if (done())
      fail(fmt::format("expected ',' or '{}' to close the bracket opened at {}:{}, found the end of the file",
                       close, open.line, open.column));
    if (peek() == ',') {
      take();
      skip_blank();
    } else if (peek() != close) {
      if (!line_ended) fail(fmt::format("expected ',' or '{}', found {}", close, found()));
      if (!document_.missing_comma) document_.missing_comma = end;
    }
    if (peek() != close) return true;
    take();
    return false;
  }

  bool opens_empty(char close) {
    skip_blank();
    if (peek() != close) return false;
    take();
    return true;
  }

  void list(Value& v, int depth) {
    enter(v, Kind::list, depth);
    path_.emplace_back("[]");
    if (!opens_empty(']')) {
      do v.items.push_back(value(depth + 1));
      while (another(']', v.at));
    }
    path_.pop_back();
  }

  void object(Value& v, int depth) {
    enter(v, Kind::object, depth);
    if (opens_empty('}')) return;
    std::unordered_map<std::string, Position> seen;
    do {
      Member m;
      m.at = at_;
      m.name = name();
      skip_blank();
      if (peek() != ':') fail(fmt::format("expected ':' after \"{}\", found {}", m.name, found()));
      take();
      skip_blank();
      path_.push_back(m.name);
      const auto [first, is_new] = seen.try_emplace(m.name, m.at);
      if (!is_new)
        document_.duplicates.push_back({fmt::format("{}", fmt::join(path_, ".")), first->second, m.at});
      m.value = value(depth + 1);
      path_.pop_back();
      v.members.push_back(std::move(m));
    } while (another('}', v.at));
  }

  std::string name() {
    if (peek() == '"') return string();
    if (!is_name_start(peek())) fail(fmt::format("expected a name in quotes or '}}', found {}", found()));
    if (!document_.unquoted_name) document_.unquoted_name = at_;
    std::string out;
    while (is_name_char(peek())) out += take();
    return out;
  }

  void word(Value& v) {
    while (is_name_char(peek())) v.text += take();
    if (v.text == "true" || v.text == "false") {
      v.kind = Kind::boolean;
      v.boolean = v.text == "true";
    } else if (v.text == "Infinity" || v.text == "NaN") {
      v.kind = Kind::number;
      v.number = v.text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity();
    } else if (v.text != "null") {
      const std::string_view meant = v.text == "True"    ? "true"
                                     : v.text == "False" ? "false"
                                     : v.text == "None"  ? "null"
                                                         : "";
      fail(v.at, meant.empty()
                     ? fmt::format("'{}' is no value: text stands in quotes, \"{}\"", v.text, v.text)
                     : fmt::format("'{}' is Python; expected {}", v.text, meant));
    }
  }

  void number(Value& v) {
    v.kind = Kind::number;
    while (is_number_char(peek())) v.text += take();
    if (!parse_number(v)) fail(v.at, fmt::format("'{}' is no number", v.text));
    if (std::isinf(v.number) && v.text.back() != 'y') {
      fail(v.at, fmt::format("'{}' is beyond the range of a 64-bit float", v.text));
    }
  }

  static bool parse_number(Value& v) {
    std::string digits;
    for (size_t i = 0; i < v.text.size(); ++i) {
      const bool between =
          i > 0 && i + 1 < v.text.size() && is_digit(v.text[i - 1]) && is_digit(v.text[i + 1]);
      if (v.text[i] == '_' && !between) return false;
      if (v.text[i] != '_') digits += v.text[i];
    }
    if (digits.starts_with('+')) digits.erase(0, 1);
    if (digits == "Infinity" || digits == "-Infinity") {
      v.number = std::numeric_limits<double>::infinity() * (digits[0] == '-' ? -1 : 1);
      return true;
    }
    const size_t first = digits.starts_with('-') ? 1 : 0;
    // from_chars would also read "inf", "nan" and a second sign.
    if (first == digits.size() || (!is_digit(digits[first]) && digits[first] != '.')) return false;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, v.number);
    if (stop != end || error == std::errc::invalid_argument) return false;
    // A value too small for a double is zero, one too large is refused by the caller.
    if (error == std::errc::result_out_of_range) v.number = too_large(digits) ? HUGE_VAL : 0.0;
    int64_t integer = 0;
    const auto [stop_int, error_int] = std::from_chars(digits.data(), end, integer);
    if (stop_int == end && error_int == std::errc()) v.integer = integer;
    return true;
  }

  static bool too_large(const std::string& digits) {
    const size_t exponent = digits.find_first_of("eE");
    return exponent == std::string::npos || digits[exponent + 1] != '-';
  }

  // ---- strings ----

  std::string string() {
    const Position start = at_;
    std::string out;
    take();
    while (peek() != '"') {
      if (done() || peek() == '\n')
        fail(start, "this text is never closed; expected \" before the end of the line");
      if (static_cast<unsigned char>(peek()) < 0x20 && peek() != '\t')
        fail(fmt::format("{} inside text", found()));
      if (peek() == '\\') {
        escape(out);
      } else {
        out += take();
      }
    }
    take();
    return out;
  }

  void escape(std::string& out) {
    const Position start = at_;
    take();
    if (done()) fail(start, "the file ends inside text");
    const char c = take();
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u':
        append_utf8(out, code_point(start));
        return;
      default:
        fail(start, fmt::format(
                        "'\\{}' is no escape; expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX", c));
    }
  }

  uint32_t hex4(Position start) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (is_digit(c)) {
        code = code * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        fail(start, "expected four hexadecimal digits after \\u");
      }
      take();
    }
    return code;
  }

  // UTF-16 as JSON writes it: a character beyond the basic plane is two escapes.
  uint32_t code_point(Position start) {
    const uint32_t high = hex4(start);
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || peek() != '\\' || peek(1) != 'u') fail(start, "half of a surrogate pair");
    take();
    take();
    const uint32_t low = hex4(start);
    if (low < 0xDC00 || low > 0xDFFF) fail(start, "half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  std::string_view text_;
  const std::string& file_;
  size_t next_ = 0;
  Position at_{1, 1};
  std::vector<std::string> path_;
  Document document_;
};

void show_into(const Value& v, std::string& out, size_t limit) {
  if (out.size() > limit) return;
  switch (v.kind) {
    case Kind::null:
      out += "null";
      return;
    case Kind::boolean:
      out += v.boolean ? "true" : "false";
      return;
    case Kind::number:
      out += v.text;
      return;
    case Kind::string:
      out += fmt::format("\"{}\"", v.text);
      return;
    case Kind::list:
      out += '[';
      for (size_t i = 0; i < v.items.size() && out.size() <= limit; ++i) {
        if (i > 0) out += ", ";
        show_into(v.items[i], out, limit);
      }
      out += ']';
      return;
    case Kind::object:
      out += '{';
      for (size_t i = 0; i < v.members.size() && out.size() <= limit; ++i) {
        out += fmt::format("{}\"{}\": ", i > 0 ? ", " : "", v.members[i].name);
        show_into(v.members[i].value, out, limit);
      }
      out += '}';
  }
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "text";
    case Kind::list:
      return "a list";
    case Kind::object:
      return "an object";
  }
  return "?";
}

const Member* Value::find(std::string_view name) const {
  for (const Member& m : members) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

Document read(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

std::string printable(std::string_view text) {
  constexpr size_t kLimit = 60;
  std::string out(text.substr(0, kLimit + 1));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (out.size() <= kLimit) return out;
  size_t cut = kLimit;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0) == 0x80) --cut;  // whole characters only
  return out.substr(0, cut) + "…";
}

std::string show(const Value& value) {
  std::string out;
  show_into(value, out, 60);
  return printable(out);
}

}  // namespace aliquot::json
