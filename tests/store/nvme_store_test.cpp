#include "aliquot/store/nvme_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "aliquot/error.h"
#include "aliquot/memory/buffer.h"
#include "tests/store/scratch_folder.h"

namespace aliquot::test {
namespace {

namespace fs = std::filesystem;

/// Every way of moving the bytes: engine, paths.
struct Way {
  bool uring;
  int paths;
};

class NvmeStoreWays : public testing::TestWithParam<Way> {
 protected:
  NvmeOptions options(int64_t block = 64 << 10) const {
    NvmeOptions o;
    for (int i = 0; i < GetParam().paths; ++i) o.paths.push_back(folder_.path() / std::to_string(i));
    o.block_size = block;
    o.threads = 3;
    o.use_uring = GetParam().uring;
    return o;
  }
  ScratchFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ways, NvmeStoreWays,
                         testing::Values(Way{true, 1}, Way{true, 3}, Way{false, 1}, Way{false, 2}),
                         [](const auto& info) {
                           return fmt::format("{}_{}paths", info.param.uring ? "uring" : "threads",
                                              info.param.paths);
                         });

std::vector<std::byte> random_bytes(std::mt19937_64& random, int64_t n) {
  std::vector<std::byte> bytes(static_cast<size_t>(n));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Against plain memory: any offset, any size, several extents.
TEST_P(NvmeStoreWays, KeepsWhatWasWritten) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  NvmeStore store(options());
  std::vector<Extent> extents;
  std::vector<std::vector<std::byte>> model;
  for (const int64_t bytes : {1, 4095, 4096, 4097, 300'000, 5'000'000}) {
    extents.push_back(store.allocate(bytes));
    model.emplace_back(static_cast<size_t>(bytes), std::byte{0});
  }
  for (int step = 0; step < 150; ++step) {
    const size_t e = random() % extents.size();
    const auto size = static_cast<int64_t>(model[e].size());
    const int64_t offset = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    const int64_t n = static_cast<int64_t>(random() % static_cast<uint64_t>(size - offset + 1));
    if (random() % 2 == 0) {
      const std::vector<std::byte> bytes = random_bytes(random, n);
      store.write(extents[e], offset, bytes);
      std::ranges::copy(bytes, model[e].begin() + offset);
    } else {
      std::vector<std::byte> bytes(static_cast<size_t>(n));
      store.read(extents[e], offset, bytes);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), model[e].begin() + offset)) << "step " << step;
    }
  }
  for (size_t e = 0; e < extents.size(); ++e) {
    std::vector<std::byte> bytes(model[e].size());
    store.read(extents[e], 0, bytes);
    ASSERT_EQ(bytes, model[e]);
  }
}

TEST_P(NvmeStoreWays, LeavesNoFileBehind) {
  NvmeStore store(options());
  store.write(store.allocate(100'000), 0, std::vector<std::byte>(100'000, std::byte{7}));
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
    EXPECT_TRUE(entry.is_directory()) << entry;
}

TEST_P(NvmeStoreWays, ManyTransfersMayBeUnderWay) {
  const Buffer out(nullptr, Kind::staging, 1 << 20), in(nullptr, Kind::staging, 1 << 20);
  NvmeStore store(options(4096));
  const Extent extent = store.allocate(1 << 20);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < 1 << 20; ++i) out.data()[i] = static_cast<std::byte>(random());
  std::vector<IoTicket> tickets;
  for (int64_t at = 0; at < 1 << 20; at += 32 << 10) {
    tickets.push_back(store.start_write(extent, at, {out.data() + at, 32 << 10}));
  }
  for (IoTicket& ticket : tickets) ticket.wait();
  store.start_read(extent, 0, {in.data(), 1 << 20}).wait();
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 1 << 20), 0);
  // A ticket that nobody waits for: the store ends it before the memory goes.
  (void)store.start_read(extent, 0, {in.data(), 1 << 20});
}

std::string problem(const NvmeOptions& options, int64_t bytes = 0) {
  try {
    NvmeStore store(options);
    store.allocate(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

NvmeOptions at(const fs::path& path) {
  NvmeOptions options;
  options.paths = {path};
  return options;
}

TEST(NvmeStore, APathThatIsAFileIsNamed) {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_EQ(problem(at(folder.path() / "file")),
            (folder.path() / "file").string() + ": nvme_path must be a folder: Not a directory");
  EXPECT_NE(problem(at(folder.path() / "file/below")).find("cannot create nvme_path"), std::string::npos);
}

TEST(NvmeStore, MorePlaceThanThereIsIsRefusedWithTheBytes) {
  const ScratchFolder folder;
  const std::string text = problem(at(folder.path()), int64_t{1} << 50);
  EXPECT_NE(text.find("1125899906842624 more bytes are wanted"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes are free"), std::string::npos) << text;
}

TEST(NvmeStore, AFullDiskIsNamedAtTheStart) {
  if (geteuid() != 0) {
    ASSERT_EQ(std::getenv("CI"), nullptr) << "mounting needs root";
    GTEST_SKIP() << "mounting needs root";
  }
  const ScratchFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    ASSERT_EQ(std::getenv("CI"), nullptr) << "this machine mounts nothing";
    GTEST_SKIP() << "this machine mounts nothing";
  }
  const std::string text = problem(at(folder.path()), 2 << 20);
  const std::string small = problem(at(folder.path()), 1 << 19);
  umount(folder.path().c_str());
  EXPECT_NE(text.find("2097152 more bytes are wanted for what is offloaded and 1048576 bytes are free"),
            std::string::npos)
      << text;
  EXPECT_EQ(small, "");
}

TEST(NvmeStore, AReadOnlyFolderIsNamed) {
  const ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const pid_t child = fork();
  if (child == 0) {
    // Root may write everywhere.
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    _exit(problem(at(folder.path())).find("cannot create a file in nvme_path: Permission denied") !=
                      std::string::npos ||
                  problem(at(folder.path())).find("Permission denied") != std::string::npos
              ? 0
              : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(NvmeStore, AKilledRunGivesItsSpaceBack) {
  const ScratchFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    NvmeStore store(at(folder.path()));
    const Extent extent = store.allocate(64 << 20);
    const bool told = write(ready[1], "x", 1) == 1;
    const std::vector<std::byte> bytes(64 << 20, std::byte{1});
    while (told) store.write(extent, 0, bytes);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  close(ready[0]);
  close(ready[1]);
}

// As a container or a user's limits leave it: no room for locked memory.
TEST(NvmeStore, NeedsNoPrivilege) {
  const ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    try {
      NvmeStore store(at(folder.path()));
      const Extent extent = store.allocate(32 << 20);
      std::vector<std::byte> bytes(32 << 20, std::byte{5}), back(32 << 20);
      store.write(extent, 0, bytes);
      store.read(extent, 0, back);
      _exit(bytes == back ? 0 : 1);
    } catch (const Error&) {
      _exit(3);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(NvmeStore, TransfersBeyondAnExtentAreOurMistake) {
  const ScratchFolder folder;
  NvmeStore store(at(folder.path()));
  const Extent extent = store.allocate(100);
  std::vector<std::byte> bytes(101);
  EXPECT_THROW(store.read(extent, 0, bytes), InternalError);
  EXPECT_THROW(store.write(extent, 50, std::span(bytes).first(51)), InternalError);
  const Buffer aligned(nullptr, Kind::staging, 8192);
  EXPECT_THROW(store.start_read(extent, 0, {aligned.data(), 8192}), InternalError);
  EXPECT_THROW(store.start_read(extent, 0, {aligned.data() + 1, 4096}), InternalError);
}

}  // namespace
}  // namespace aliquot::test
