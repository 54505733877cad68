// What was found wrong, or worth saying, about a ds_config.json: gathered, and reported all at once.
#pragma once

#include <string>
#include <vector>

#include "aliquot/config/json_reader.h"
#include "aliquot/error.h"

namespace aliquot {

/// All errors of one configuration. what() holds the first fifty line by line, "file:line:column: key: …".
class ConfigErrors : public ConfigError {
 public:
  explicit ConfigErrors(std::vector<std::string> messages);
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

class Findings {
 public:
  explicit Findings(std::string file = "") : file_(std::move(file)) {}

  /// `path` is the key's, "zero_optimization.stage"; `at` may be nowhere.
  void error(json::Position at, const std::string& path, const std::string& text);
  void warn(json::Position at, const std::string& path, const std::string& text);
  /// `path`: a key of the file that has no effect, or a value worth knowing.
  void note(json::Position at, const std::string& path, const std::string& text);

  /// Whether an error was found about that key or one below it: what follows from its value is not worth
  /// saying.
  bool failed(const std::string& path) const;
  bool ok() const { return errors_.empty(); }

  /// In the file's order; those about no place come last.
  std::vector<std::string> errors() const { return lines(errors_); }
  std::vector<std::string> warnings() const { return lines(warnings_); }
  std::vector<std::string> notes() const { return lines(notes_); }
  /// Throws ConfigErrors if there is an error.
  void throw_errors() const;

  const std::string& file() const { return file_; }
  /// "file:line:column", or "file" for nowhere.
  std::string place(json::Position at) const;

 private:
  struct Finding {
    json::Position at;
    std::string path;
    std::string text;
  };
  std::vector<std::string> lines(std::vector<Finding> findings) const;

  std::string file_;
  std::vector<Finding> errors_, warnings_, notes_;
};

}  // namespace aliquot
