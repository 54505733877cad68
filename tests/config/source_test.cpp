#include "aliquot/config/source.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing.h"

namespace aliquot {
namespace {

using testing::says;

class Source : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/aliquot-config-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& bytes) {
    const std::string path = folder_ + "/ds.json";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static std::string error_of(const std::string& path) {
    try {
      load_config(path);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }

  std::string folder_;
};

// user-pains L7: a file that cannot be parsed gives a plain message with its name.
TEST_F(Source, SaysPlainlyWhatIsNoConfig) {
  EXPECT_TRUE(says(error_of(folder_ + "/none.json"), "/none.json: no such file"));
  EXPECT_TRUE(says(error_of(folder_), "a folder"));
  EXPECT_TRUE(says(error_of(write("")), "/ds.json: the file is empty"));
  EXPECT_TRUE(says(error_of(write(" \n\t")), "the file is empty"));
  EXPECT_TRUE(says(error_of(write(std::string("\x7f"
                                              "ELF\x02\x00\x00",
                                              7))),
                   "not a text file (byte 0x00 at offset 5)"));
  EXPECT_TRUE(says(error_of(write("{\"a\": \"\xff\"}")), "not a text file (byte 0xff"));
  EXPECT_TRUE(says(error_of(write("{\"a\": \"\xc0\xaf\"}")), "not a text file"));
  EXPECT_TRUE(says(error_of(write("{\"a\": \"\xed\xa0\x80\"}")), "not a text file"));
  EXPECT_TRUE(says(error_of(write("\xff\xfe{\0}\0")), "UTF-16"));
  EXPECT_TRUE(
      says(error_of(write(std::string(static_cast<size_t>(kMaxConfigBytes) + 1, ' '))), "larger than 1 MiB"));
  EXPECT_TRUE(says(error_of("/dev/zero"), "larger than 1 MiB"));
  EXPECT_TRUE(says(error_of(write("{\"a\": ")), "/ds.json:1:7: expected a value"));
  EXPECT_TRUE(says(error_of(""), "no such file"));
}

TEST_F(Source, ReadsAFile) {
  EXPECT_EQ(load_config(write("\xEF\xBB\xBF{\"train_batch_size\": 4}")).draft.train_batch_size, 4);
}

TEST_F(Source, ReadsBase64AsDeepSpeedDoes) {
  // {"train_batch_size": 4, "note?": 1} and {"train_batch_size": 4}, urlsafe.
  const LoadedConfig loaded = load_config("eyJ0cmFpbl9iYXRjaF9zaXplIjogNH0=");
  EXPECT_EQ(loaded.draft.train_batch_size, 4);
  EXPECT_EQ(loaded.findings.file(), "<base64>");
  EXPECT_TRUE(says(error_of("bm90IGpzb24="), "no such file"));  // "not json"
}

}  // namespace
}  // namespace aliquot
