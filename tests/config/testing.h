// Shared by the tests of aliquot/config.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "aliquot/config/print.h"
#include "aliquot/config/resolve.h"

namespace aliquot::testing {

inline std::string golden_path(const std::string& name) {
  return std::string(ALIQUOT_TEST_DATA) + "/" + name;
}

inline RunFacts world(int size) {
  RunFacts facts;
  facts.world_size = size;
  return facts;
}

inline Resolution resolve(const std::string& text, const RunFacts& facts = {}, LoadOptions options = {}) {
  return resolve_config(parse_config(text, "ds.json", options), facts);
}

/// All errors of a file, of loading and of resolving; empty if it is right.
inline std::vector<std::string> errors_of(const std::string& text, const RunFacts& facts = {},
                                          LoadOptions options = {}) {
  try {
    resolve(text, facts, options);
  } catch (const ConfigErrors& e) {
    return e.messages();
  } catch (const ConfigError& e) {
    return {e.what()};
  }
  return {};
}

/// Whether `text` holds the pieces of `pattern` between its stars, in that order.
inline ::testing::AssertionResult says(const std::string& text, const std::string& pattern) {
  size_t at = 0;
  for (size_t start = 0; start <= pattern.size();) {
    const size_t star = std::min(pattern.find('*', start), pattern.size());
    const std::string piece = pattern.substr(start, star - start);
    at = text.find(piece, at);
    if (at == std::string::npos) return ::testing::AssertionFailure() << "no '" << piece << "' in: " << text;
    at += piece.size();
    start = star + 1;
  }
  return ::testing::AssertionSuccess();
}

/// Whether the lines say `patterns`, one each, in order.
inline ::testing::AssertionResult are(const std::vector<std::string>& lines,
                                      const std::vector<std::string>& patterns) {
  std::string all;
  for (const std::string& line : lines) all += "\n  " + line;
  if (lines.size() != patterns.size()) {
    return ::testing::AssertionFailure()
           << "expected " << patterns.size() << " lines, got " << lines.size() << all;
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (auto result = says(lines[i], patterns[i]); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

/// Whether one of the lines says `pattern`.
inline ::testing::AssertionResult has(const std::vector<std::string>& lines, const std::string& pattern) {
  std::string all;
  for (const std::string& line : lines) {
    if (says(line, pattern)) return ::testing::AssertionSuccess();
    all += "\n  " + line;
  }
  return ::testing::AssertionFailure() << "no '" << pattern << "' in:" << all;
}

/// A file with one sample per rank and `keys` beside it.
inline std::string with(const std::string& keys) {
  return R"({"train_micro_batch_size_per_gpu": 1, )" + keys + "}";
}

}  // namespace aliquot::testing
