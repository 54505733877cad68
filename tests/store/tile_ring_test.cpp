#include "aliquot/store/tile_ring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "tests/store/scratch_folder.h"

namespace aliquot::test {
namespace {

constexpr int64_t kPage = kDirectAlignment;

class TileRings : public testing::TestWithParam<int64_t> {
 protected:
  TileRings() : store_(options()) {}

  NvmeOptions options() const {
    NvmeOptions o;
    o.paths = {folder_.path()};
    o.block_size = 16 << 10;
    return o;
  }

  /// Three columns of `pages` pages each, all words of page p of column c being 100·c + p.
  void fill(int64_t pages) {
    for (int c = 0; c < 3; ++c) {
      columns_.push_back(store_.allocate(pages * kPage));
      for (int64_t p = 0; p < pages; ++p) {
        const std::vector<uint32_t> words(kPage / 4, static_cast<uint32_t>(100 * c + p));
        store_.write(columns_.back(), p * kPage, std::as_bytes(std::span(words)));
      }
    }
  }
  uint32_t word(int c, int64_t page) {
    uint32_t value = 0;
    store_.read(columns_[static_cast<size_t>(c)], page * kPage + 40,
                std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// Tiles of 1, 2, 3, 1, 2, … pages, every column in each.
  std::vector<Tile> tiles(int64_t pages) {
    std::vector<Tile> all;
    for (int64_t p = 0, n = 1; p < pages; p += n, n = n % 3 + 1) {
      n = std::min(n, pages - p);
      Tile& tile = all.emplace_back();
      for (const Extent& column : columns_) tile.parts.push_back({&store_, column, p * kPage, n * kPage});
    }
    return all;
  }

  ScratchFolder folder_;
  NvmeStore store_;
  std::vector<Extent> columns_;
};

INSTANTIATE_TEST_SUITE_P(Buffers, TileRings, testing::Values(1, 2, 3, 8, 100),
                         [](const auto& info) { return fmt::format("{}", info.param); });

// Adds column 1 to columns 0 and 2, three times over.
TEST_P(TileRings, ComputeEveryTileOnceAndKeepTheResult) {
  constexpr int64_t kPages = 29;
  fill(kPages);
  for (const bool ahead : {true, false}) {
    for (const bool behind : {true, false}) {
      TileRing ring({GetParam(), ahead, behind}, std::make_shared<Meter>());
      size_t expected = 0;
      ring.run(tiles(kPages), [&](size_t tile, std::span<const std::span<std::byte>> parts) {
        ASSERT_EQ(tile, expected++);
        ASSERT_EQ(parts.size(), 3U);
        for (size_t i = 0; i < parts[0].size(); i += 4) {
          uint32_t a = 0, b = 0, c = 0;
          std::memcpy(&a, &parts[0][i], 4);
          std::memcpy(&b, &parts[1][i], 4);
          std::memcpy(&c, &parts[2][i], 4);
          a += b;
          c += b;
          std::memcpy(&parts[0][i], &a, 4);
          std::memcpy(&parts[2][i], &c, 4);
        }
      });
      EXPECT_EQ(expected, tiles(kPages).size());
      const TileRingStats stats = ring.take_stats();
      EXPECT_EQ(stats.bytes_read, 3 * kPages * kPage);
      EXPECT_EQ(stats.bytes_written, 3 * kPages * kPage);
    }
  }
  for (int64_t p = 0; p < kPages; ++p) {
    EXPECT_EQ(word(0, p), p + 4 * (100 + p));
    EXPECT_EQ(word(1, p), 100 + p);
    EXPECT_EQ(word(2, p), 200 + p + 4 * (100 + p));
  }
}

TEST_P(TileRings, AnExceptionEndsThemCleanly) {
  fill(29);
  const auto meter = std::make_shared<Meter>();
  TileRing ring({GetParam()}, meter);
  const auto failing = [](size_t tile, auto) {
    if (tile == 5) throw std::runtime_error("not finite");
  };
  EXPECT_THROW(ring.run(tiles(29), failing), std::runtime_error);
  ring.run(tiles(29), [](size_t, auto) {});
  EXPECT_EQ(word(1, 28), 128U);
}

TEST_P(TileRings, NoTilesAreNoWork) {
  TileRing({GetParam()}, nullptr).run({}, [](size_t, auto) { FAIL(); });
}

}  // namespace
}  // namespace aliquot::test
