#include "aliquot/layout/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "aliquot/error.h"
#include "aliquot/layout/placement.h"

namespace aliquot::test {
namespace {

std::vector<ParamSpec> specs_of(const std::vector<int64_t>& numels, DType dtype = DType::fp32) {
  std::vector<ParamSpec> specs;
  for (size_t i = 0; i < numels.size(); ++i) {
    specs.push_back({.name = "h." + std::to_string(i / 4) + ".p" + std::to_string(i),
                     .numel = numels[i],
                     .ndim = 2,
                     .dtype = dtype});
  }
  return specs;
}

// Every element of every parameter belongs to exactly one rank, in order.
void expect_partition(const std::vector<ParamSpec>& specs, const Layout& layout) {
  std::vector<int64_t> covered(specs.size(), 0);
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    ASSERT_EQ(layout.unit_bytes(u) % (layout.world() * 64), 0);
    for (int r = 0; r < layout.world(); ++r) {
      const Range slice = layout.slice(u, r);
      for (const Piece& piece : layout.pieces(u, r)) {
        const Segment& segment = layout.segment({u, piece.segment});
        ASSERT_GE(piece.unit_offset, slice.begin);
        ASSERT_LE(piece.unit_offset + piece.numel, slice.end);
        ASSERT_EQ(piece.unit_offset - segment.offset, piece.param_offset);
        ASSERT_EQ(piece.param_offset, covered[static_cast<size_t>(segment.param)])
            << "pieces come in order, without holes";
        covered[static_cast<size_t>(segment.param)] += piece.numel;
      }
    }
    for (const Segment& segment : layout.unit(u).segments) {
      ASSERT_EQ(segment.offset * size_of(layout.unit(u).dtype) % 64, 0) << "every segment starts on 64 bytes";
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) ASSERT_EQ(covered[i], specs[i].numel);
}

TEST(Layout, SmallSizesInEveryWorld) {
  for (int world = 1; world <= 8; ++world) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      const auto specs = specs_of({5, 3, 1, 7, 0, 64, 63, 65, 0, 1}, dtype);
      expect_partition(specs, Layout(specs, world));
    }
  }
}

TEST(Layout, UnitsDependOnTheModelAlone) {
  const auto specs = specs_of({100, 400'000, 300'000, 5, 250'000, 7, 900'000, 1});
  const Layout one(specs, 1);
  for (int world = 2; world <= 8; ++world) {
    const Layout layout(specs, world);
    ASSERT_EQ(layout.units().size(), one.units().size());
    for (size_t u = 0; u < one.units().size(); ++u) {
      ASSERT_EQ(layout.units()[u].numel, one.units()[u].numel);
      ASSERT_EQ(layout.units()[u].segments.size(), one.units()[u].segments.size());
    }
  }
}

TEST(Layout, ClassesDoNotMix) {
  const std::vector<ParamSpec> specs{
      {.name = "a", .numel = 4, .ndim = 2, .dtype = DType::bf16},
      {.name = "b", .numel = 4, .ndim = 1, .dtype = DType::bf16},
      {.name = "c", .numel = 4, .ndim = 2, .dtype = DType::fp32},
      {.name = "d", .numel = 4, .ndim = 2, .dtype = DType::bf16, .trainable = false},
      {.name = "e", .numel = 4, .ndim = 0, .dtype = DType::bf16},
      {.name = "f", .numel = 4, .ndim = 3, .dtype = DType::bf16}};
  const Layout layout(specs, 2);
  ASSERT_EQ(layout.units().size(), 4U);
  EXPECT_EQ(layout.segment_of(0).unit, layout.segment_of(5).unit) << "matrices together";
  EXPECT_EQ(layout.segment_of(1).unit, layout.segment_of(4).unit) << "vectors and scalars together";
}

TEST(Layout, AUnitClosesWithItsBlockOrWhenFull) {
  // 64 blocks of 1 Mi fp32 elements: the limit is a 64th of the model, 4 MiB.
  std::vector<ParamSpec> specs;
  for (int block = 0; block < 64; ++block) {
    for (const char* part : {"q", "k"}) {
      specs.push_back({.name = "h." + std::to_string(block) + "." + part, .numel = 1 << 19, .ndim = 2});
    }
  }
  const Layout layout(specs, 2);
  EXPECT_EQ(layout.unit_limit(), int64_t{4} << 20);
  EXPECT_EQ(layout.units().size(), 64U) << "a unit for each block";
}

TEST(Layout, RandomModels) {
  EXPECT_TRUE(rc::check("every element has one owner", [] {
    const auto numels = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5000));
    const auto specs = specs_of(numels, *rc::gen::element(DType::fp32, DType::bf16));
    expect_partition(specs, Layout(specs, *rc::gen::inRange(1, 9)));
  }));
}

TEST(Layout, FirstNumberOfAName) {
  EXPECT_EQ(first_number("transformer.h.12.ln_1.weight"), 12);
  EXPECT_EQ(first_number("wte.weight"), -1);
  EXPECT_NO_THROW(first_number("p99999999999999999999999999"));
}

TEST(Layout, NoRanksIsAnError) {
  EXPECT_THROW(Layout(specs_of({1}), 0), UsageError);
}

// 16-bit models with Adam: 4+12/N, 2+14/N, 16/N bytes a parameter with 16-bit accumulators, 2 more in the
// gradient column with the fp32 default; fp32 models are their own masters.
TEST(Placement, BytesPerParameter) {
  constexpr int64_t n = 4 * 32 * 1000;  // needs no padding in a world of 4
  const int world = 4;
  const auto per_param = [&](DType dtype, int stage, DType accumulate) {
    const auto specs = specs_of({n}, dtype);
    return static_cast<double>(
               state_bytes(Layout(specs, world), Placement::of_stage(stage), accumulate, 2).total()) /
           n;
  };
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 1, DType::bf16), 4 + 12.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 2, DType::bf16), 2 + 14.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 3, DType::bf16), 16.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 1, DType::fp32), 6 + 12.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 2, DType::fp32), 2 + 16.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::bf16, 3, DType::fp32), 18.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::fp32, 1, DType::fp32), 8 + 8.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::fp32, 2, DType::fp32), 4 + 12.0 / world);
  EXPECT_DOUBLE_EQ(per_param(DType::fp32, 3, DType::fp32), 16.0 / world);
}

}  // namespace
}  // namespace aliquot::test
