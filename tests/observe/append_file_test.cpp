#include "aliquot/observe/append_file.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>

#include "aliquot/error.h"
#include "tests/observe/scratch.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;

using AppendFileTest = Scratch;

/// While it lives no file may grow beyond `bytes`: what a full disk does, without one.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const IoError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(AppendFileTest, ContinuesWhatIsThere) {
  const fs::path path = folder_ / "a";
  EXPECT_TRUE(AppendFile(path).append("one\n"));
  AppendFile file(path);
  EXPECT_EQ(file.size(), 4);
  EXPECT_TRUE(file.append("two\n"));
  EXPECT_EQ(read(path), "one\ntwo\n");
  file.truncate(4);
  EXPECT_TRUE(file.append("2\n"));
  EXPECT_EQ(read(path), "one\n2\n");
}

TEST_F(AppendFileTest, AFullDiskLosesWholeRecordsAndSaysSoOnce) {
  const fs::path path = folder_ / "a";
  AppendFile file(path);
  EXPECT_TRUE(file.append("0123456789\n"));
  {
    const FullDisk full(16);
    EXPECT_FALSE(file.append("too long for it\n"));
    EXPECT_FALSE(file.append("again too long\n"));
    EXPECT_EQ(read(path), "0123456789\n");
    EXPECT_TRUE(file.append("fits\n"));
  }
  EXPECT_TRUE(file.append("there is room now\n"));
  EXPECT_EQ(read(path), "0123456789\nfits\nthere is room now\n");
  EXPECT_EQ(file.lost(), 2);
  EXPECT_EQ(messages_, std::vector{fmt::format(
                           "aliquot: warning: cannot write {}: File too large; training goes on, what "
                           "cannot be written is lost\n",
                           path.string())});
}

TEST_F(AppendFileTest, OutputFoldersAreMadeAndTried) {
  prepare_output_folder(folder_ / "a/b");
  EXPECT_TRUE(fs::is_empty(folder_ / "a/b"));
  std::ofstream(folder_ / "file") << "in the way";
  EXPECT_EQ(message_of([&] { prepare_output_folder(folder_ / "file"); }),
            fmt::format("cannot create the output folder {}/file: Not a directory; choose another",
                        folder_.string()));
  EXPECT_EQ(message_of([&] { prepare_output_folder(folder_ / "file/b"); }),
            fmt::format("cannot create the output folder {}/file/b: Not a directory; choose another",
                        folder_.string()));
  const FullDisk full(1000);
  const std::string message = message_of([&] { prepare_output_folder(folder_ / "c"); });
  EXPECT_TRUE(message.starts_with(fmt::format("cannot write {}/c/.writable.", folder_.string()))) << message;
  EXPECT_TRUE(message.ends_with(": File too large; choose another folder, or free space and rights there"))
      << message;
  EXPECT_TRUE(fs::is_empty(folder_ / "c"));
}

TEST_F(AppendFileTest, ReplacedFilesAreWholeOrAsBefore) {
  const fs::path path = folder_ / "summary.json";
  replace_file(path, "first");
  replace_file(path, "second");
  EXPECT_EQ(read(path), "second");
  {
    const FullDisk full(10);
    EXPECT_THROW(replace_file(path, std::string(1000, 'x')), IoError);
  }
  EXPECT_EQ(read(path), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(AppendFileTest, OpeningInAMissingFolderNamesIt) {
  const std::string message = message_of([&] { AppendFile file(folder_ / "no/such"); });
  EXPECT_EQ(
      message,
      fmt::format("cannot open {}/no/such: No such file or directory; choose another folder, or free space "
                  "and rights there",
                  folder_.string()));
}

}  // namespace
}  // namespace aliquot
