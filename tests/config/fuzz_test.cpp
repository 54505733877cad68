// Damaged files: every truncation, and byte flips of every sample, are read or refused, never more.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "testing.h"

namespace aliquot {
namespace {

std::vector<std::string> samples() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::golden_path("configs"))) {
    if (!entry.is_regular_file()) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    texts.push_back(text.str());
  }
  return texts;
}

// True if the text was accepted. Only ConfigErrors with a message may come out.
bool survives(const std::string& text) {
  RunFacts facts;
  facts.world_size = 2;
  facts.hidden_size = 64;
  try {
    const Resolution r = resolve_config(parse_config(text, "ds.json"), facts);
    EXPECT_FALSE(resolved_json(r.config).empty());
    return true;
  } catch (const ConfigError& e) {
    EXPECT_TRUE(std::string(e.what()).find("ds.json") != std::string::npos) << e.what();
    return false;
  }
}

TEST(Fuzz, TruncatedFiles) {
  size_t count = 0;
  for (const std::string& text : samples()) {
    for (size_t length = 0; length < text.find_last_of('}'); length += 3, ++count) {
      EXPECT_FALSE(survives(text.substr(0, length)));
    }
  }
  EXPECT_GT(count, 1000U);
}

TEST(Fuzz, FlippedBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::string& text : samples()) {
    for (int i = 0; i < 200; ++i) {
      std::string damaged = text;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      survives(damaged);
    }
  }
}

// Structure kept, values exchanged: every leaf of a sample becomes something else.
TEST(Fuzz, ExchangedTokens) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const char* tokens[] = {"null",
                          "true",
                          "-1",
                          "1e308",
                          "\"auto\"",
                          "[]",
                          "{}",
                          "\"\"",
                          "Infinity",
                          "NaN",
                          "9223372036854775807",
                          "[1, 2, 3]"};
  for (const std::string& text : samples()) {
    for (size_t colon = text.find(':'); colon != std::string::npos; colon = text.find(':', colon + 1)) {
      const size_t end = text.find_first_of(",\n}", colon);
      if (end == std::string::npos) break;
      survives(text.substr(0, colon + 1) + " " + tokens[random() % std::size(tokens)] + text.substr(end));
    }
  }
}

}  // namespace
}  // namespace aliquot
