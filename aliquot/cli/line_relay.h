// What one rank prints, on its way to the terminal: whole lines, each with the rank before it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace aliquot {

class LineRelay {
 public:
  using Sink = std::function<void(std::string_view line)>;

  /// `sink` takes whole lines, prefix and newline included.
  LineRelay(std::string prefix, Sink sink) : prefix_(std::move(prefix)), sink_(std::move(sink)) {}

  /// Passes on the lines that `bytes` completes. A line longer than 64 KiB is cut into several.
  void feed(std::string_view bytes);
  /// Passes on what has no newline yet.
  void finish();

  /// The last line that was not blank, without prefix; empty if there was none.
  const std::string& last_line() const { return last_; }

 private:
  void pass(std::string_view line);

  std::string prefix_;
  Sink sink_;
  std::string open_;  // the line that has not ended
  std::string last_;
};

}  // namespace aliquot
