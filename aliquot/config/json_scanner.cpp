#include "aliquot/config/json_scanner.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

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

bool too_large(const std::string& digits) {
  const size_t exponent = digits.find_first_of("eE");
  return exponent == std::string::npos || digits[exponent + 1] != '-';
}

bool parse_number(Value& v) {
  std::string digits;
  for (size_t i = 0; i < v.text.size(); ++i) {
    const bool between = i > 0 && i + 1 < v.text.size() && is_digit(v.text[i - 1]) && is_digit(v.text[i + 1]);
    if (v.text[i] == '_' && !between) return false;
    if (v.text[i] != '_') digits += v.text[i];
  }
  if (digits.starts_with("+-")) return false;
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

}  // namespace

Scanner::Scanner(std::string_view text, const std::string& file) : text_(text), file_(file) {
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

char Scanner::take() {
  const char c = text_[next_++];
  if (c == '\n') {
    ++at_.line;
    at_.column = 1;
  } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // not the middle of a UTF-8 character
    ++at_.column;
  }
  return c;
}

void Scanner::fail(Position at, const std::string& what) const {
  throw ConfigError(fmt::format("{}:{}:{}: {}", file_, at.line, at.column, what));
}

std::string Scanner::found() const {
  if (done()) return "the end of the file";
  const auto c = static_cast<unsigned char>(peek());
  if (c < 0x20 || c == 0x7F) return fmt::format("the control character 0x{:02x}", c);
  size_t length = 1;
  while ((static_cast<unsigned char>(peek(length)) & 0xC0) == 0x80) ++length;
  return fmt::format("'{}'", text_.substr(next_, length));
}

bool Scanner::starts_number() const {
  const char c = peek();
  return is_digit(c) || c == '-' || c == '+' || c == '.';
}

bool Scanner::starts_word() const {
  return is_name_start(peek());
}

// ---- blanks ----

bool Scanner::skip_blank() {
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

bool Scanner::skip_block_comment() {
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

std::string Scanner::word() {
  std::string out;
  while (is_name_char(peek())) out += take();
  return out;
}

void Scanner::constant(Value& v) {
  const Position start = at_;
  v.text = word();
  if (v.text == "true" || v.text == "false") {
    v.kind = Kind::boolean;
    v.boolean = v.text == "true";
  } else if (v.text == "Infinity" || v.text == "NaN") {
    v.kind = Kind::number;
    v.number =
        v.text == "NaN" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (v.text != "null") {
    const std::string_view meant = v.text == "True"    ? "true"
                                   : v.text == "False" ? "false"
                                   : v.text == "None"  ? "null"
                                                       : "";
    fail(start, meant.empty() ? fmt::format("'{}' is no value: text stands in quotes, \"{}\"",
                                            printable(v.text), printable(v.text))
                              : fmt::format("'{}' is Python; expected {}", v.text, meant));
  }
}

void Scanner::number(Value& v) {
  const Position start = at_;
  v.kind = Kind::number;
  while (is_number_char(peek())) v.text += take();
  if (!parse_number(v)) fail(start, fmt::format("'{}' is no number", printable(v.text)));
  if (std::isinf(v.number) && v.text.back() != 'y') {
    fail(start, fmt::format("'{}' is beyond the range of a 64-bit float", printable(v.text)));
  }
}

std::string Scanner::text() {
  const Position start = at_;
  std::string out;
  take();
  while (peek() != '"') {
    if (done() || peek() == '\n') {
      fail(start, "this text is never closed; expected \" before the end of the line");
    }
    if (static_cast<unsigned char>(peek()) < 0x20 && peek() != '\t') {
      fail(fmt::format("{} inside text", found()));
    }
    if (peek() == '\\') {
      escape(out);
    } else {
      out += take();
    }
  }
  take();
  return out;
}

void Scanner::escape(std::string& out) {
  const Position start = at_;
  take();
  if (done()) fail(start, "the file ends inside text");
  const std::string escaped = found();
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
      fail(start, fmt::format("{} after a backslash; expected one of \" \\ / b f n r t u", escaped));
  }
}

uint32_t Scanner::hex4(Position start) {
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
uint32_t Scanner::code_point(Position start) {
  const uint32_t high = hex4(start);
  if (high < 0xD800 || high > 0xDFFF) return high;
  if (high > 0xDBFF || peek() != '\\' || peek(1) != 'u') fail(start, "half of a surrogate pair");
  take();
  take();
  const uint32_t low = hex4(start);
  if (low < 0xDC00 || low > 0xDFFF) fail(start, "half of a surrogate pair");
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

}  // namespace aliquot::json
