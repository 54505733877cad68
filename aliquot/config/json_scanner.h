// The characters of a JSON text: where the next one stands, blanks and comments, and the values without
// structure. json_reader.cpp builds objects and lists from them.
#pragma once

#include <string>
#include <string_view>

#include "aliquot/config/json_reader.h"

namespace aliquot::json {

class Scanner {
 public:
  /// `text` and `file` outlive the scanner.
  Scanner(std::string_view text, const std::string& file);

  bool done() const { return next_ == text_.size(); }
  /// A character ahead without taking it; NUL beyond the end.
  char peek(size_t ahead = 0) const { return next_ + ahead < text_.size() ? text_[next_ + ahead] : '\0'; }
  char take();
  Position at() const { return at_; }

  /// Takes blanks and comments; true if a line ended among them.
  bool skip_blank();

  /// Whether a number, or a word (true, Infinity, a name without quotes), starts here.
  bool starts_number() const;
  bool starts_word() const;

  /// The content of text in double quotes, which start here.
  std::string text();
  /// Letters, digits, '_', '-' and '.' from here on.
  std::string word();
  /// Reads a number, or one of true, false, null, Infinity, NaN, into `value`.
  void number(Value& value);
  void constant(Value& value);

  /// Throws ConfigError "file:line:column: what".
  [[noreturn]] void fail(const std::string& what) const { fail(at_, what); }
  [[noreturn]] void fail(Position at, const std::string& what) const;
  /// The next character as messages name it.
  std::string found() const;

 private:
  bool skip_block_comment();
  void escape(std::string& out);
  uint32_t hex4(Position start);
  uint32_t code_point(Position start);

  std::string_view text_;
  const std::string& file_;
  size_t next_ = 0;
  Position at_{1, 1};
};

}  // namespace aliquot::json
