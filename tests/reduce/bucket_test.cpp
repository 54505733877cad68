#include "aliquot/reduce/bucket.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace aliquot::test {
namespace {

std::vector<ParamSpec> specs_of(const std::vector<int64_t>& numels) {
  std::vector<ParamSpec> specs;
  for (size_t i = 0; i < numels.size(); ++i) {
    specs.push_back({.name = "h." + std::to_string(i / 3) + ".p" + std::to_string(i),
                     .numel = numels[i],
                     .ndim = 1 + static_cast<int64_t>(i) % 2,
                     .dtype = i % 5 == 4 ? DType::fp32 : DType::bf16,
                     .trainable = i % 7 != 6});
  }
  return specs;
}

// Every element of every trainable parameter is in one chunk of one bucket, and in its owner's.
void expect_complete(const std::vector<ParamSpec>& specs, const Layout& layout,
                     const std::vector<Bucket>& buckets) {
  std::vector<int64_t> covered(specs.size(), 0);
  for (const Bucket& bucket : buckets) {
    RC_ASSERT(static_cast<int>(bucket.chunks.size()) == layout.world());
    for (const SegmentId id : bucket.segments) RC_ASSERT(layout.unit(id.unit).dtype == bucket.dtype);
    for (int owner = 0; owner < layout.world(); ++owner) {
      int64_t end = 0;
      for (const BucketPiece& piece : bucket.chunks[static_cast<size_t>(owner)].pieces) {
        const SegmentId id = bucket.segments[static_cast<size_t>(piece.index)];
        const Range own = layout.slice(id.unit, owner);
        RC_ASSERT(piece.unit_offset >= own.begin);
        RC_ASSERT(piece.unit_offset + piece.numel <= own.end);
        RC_ASSERT(piece.unit_offset == layout.segment(id).offset + piece.param_offset);
        RC_ASSERT(piece.chunk_offset >= end);
        RC_ASSERT(piece.chunk_offset % 32 == 0);
        end = piece.chunk_offset + piece.numel;
        covered[static_cast<size_t>(layout.segment(id).param)] += piece.numel;
      }
      RC_ASSERT(end == bucket.chunks[static_cast<size_t>(owner)].numel);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i)
    RC_ASSERT(covered[i] == (specs[i].trainable ? specs[i].numel : 0));
}

TEST(Buckets, HoldEveryElementOnceWithItsOwner) {
  EXPECT_TRUE(rc::check([] {
    const auto numels = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 300));
    const int world = *rc::gen::inRange(1, 9);
    const auto bucket = *rc::gen::element<int64_t>(-1, 0, 1, 7, 63, 64, 65, 1000, 1'000'000'000);
    const auto specs = specs_of(numels);
    const Layout layout(specs, world);
    expect_complete(specs, layout, plan_buckets(layout, bucket));
  }));
}

TEST(Buckets, TakeTheLastRegisteredFirstAndCloseBeforeTheSizeIsPassed) {
  const std::vector<ParamSpec> specs{{.name = "a", .numel = 40, .ndim = 2},
                                     {.name = "b", .numel = 30, .ndim = 2},
                                     {.name = "c", .numel = 100, .ndim = 2},
                                     {.name = "d", .numel = 10, .ndim = 1},
                                     {.name = "e", .numel = 54, .ndim = 2}};
  const Layout layout(specs, 2);
  std::vector<std::vector<std::string>> names;
  for (const Bucket& bucket : plan_buckets(layout, 64)) {
    names.emplace_back();
    for (const SegmentId id : bucket.segments) {
      names.back().push_back(specs[static_cast<size_t>(layout.segment(id).param)].name);
    }
  }
  const std::vector<std::vector<std::string>> expected{{"e", "d"}, {"c"}, {"b"}, {"a"}};
  EXPECT_EQ(names, expected);
}

TEST(Buckets, AreNotLargerThanASixteenthOfTheModel) {
  const std::vector<ParamSpec> large{{.name = "a", .numel = 64 << 20, .ndim = 2}},
      small{{.name = "a", .numel = 10, .ndim = 2}};
  EXPECT_EQ(effective_bucket_numel(Layout(large, 2), 500'000'000), 4 << 20);
  EXPECT_EQ(effective_bucket_numel(Layout(large, 2), 1000), 1000);
  EXPECT_EQ(effective_bucket_numel(Layout(small, 2), 500'000'000), 1 << 20);
}

}  // namespace
}  // namespace aliquot::test
