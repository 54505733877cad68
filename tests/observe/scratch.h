// A folder for one test, removed at its end; and what the test's code says to people.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "aliquot/log.h"

namespace aliquot {

class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "aliquot-observe-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    log::set_sink([this](std::string_view line) { messages_.emplace_back(line); });
  }
  ~Scratch() override {
    log::set_sink({});
    std::filesystem::remove_all(folder_);
  }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(in) << path;
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
  std::vector<std::string> messages_;
};

}  // namespace aliquot
