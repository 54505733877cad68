// A2, A3 and A4 of [Note: arithmetic] against plain loops.
#include "testing.h"

namespace aliquot {
namespace {

using testing::in_dtype;
using testing::OnTarget;
using testing::same;

std::vector<float> widened(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(size_of(dtype)));
  kernels::widen(bytes.data(), dtype, values.data(), static_cast<int64_t>(values.size()));
  return values;
}

float through(float x, DType dtype) {
  return widened(in_dtype({x}, dtype), dtype)[0];
}

// A2 and A3 word for word. A null input counts as +0.0.
std::vector<float> plain_reduce(const std::vector<std::vector<float>>& inputs,
                                const std::vector<bool>& present, const std::vector<float>* out,
                                DType out_dtype) {
  std::vector<float> result(inputs[0].size());
  for (size_t i = 0; i < result.size(); ++i) {
    float s = present[0] ? inputs[0][i] : 0.0F;
    for (size_t r = 1; r < inputs.size(); ++r) s = s + (present[r] ? inputs[r][i] : 0.0F);
    result[i] = through(out != nullptr ? (*out)[i] + s : s, out_dtype);
  }
  return result;
}

// A4 word for word.
double plain_sum_of_squares(const std::vector<float>& x) {
  double total = 0;
  for (size_t begin = 0; begin < x.size(); begin += 4096) {
    double lane[8] = {};
    for (size_t i = begin; i < std::min(begin + 4096, x.size()); ++i) {
      const auto wide = static_cast<double>(x[i]);
      lane[(i - begin) % 8] += wide * wide;
    }
    total += ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  return total;
}

class Sums : public ::testing::TestWithParam<const char*> {};

TEST_P(Sums, ReduceAddsByRank) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(21);
  for (const size_t ranks : {1, 2, 3, 4, 8, 13}) {
    for (const int64_t n : {0, 1, 2, 7, 8, 16, 63, 64, 65, 259, 1031}) {
      for (const DType dtype : testing::kDTypes) {
        std::vector<std::vector<std::byte>> bytes;
        std::vector<std::vector<float>> values;
        std::vector<const void*> pointers;
        std::vector<bool> present;
        for (size_t r = 0; r < ranks; ++r) {
          bytes.push_back(in_dtype(testing::any_floats(random, n), dtype));
          values.push_back(widened(bytes.back(), dtype));
          present.push_back(random() % 4 != 0);
          pointers.push_back(present.back() ? bytes.back().data() : nullptr);
        }
        for (const DType out_dtype : testing::kDTypes) {
          std::vector<std::byte> out = in_dtype(testing::normal(random, n), out_dtype);
          const std::vector<float> before = widened(out, out_dtype);
          kernels::reduce(pointers, dtype, out.data(), out_dtype, true, n);
          EXPECT_TRUE(same(widened(out, out_dtype), plain_reduce(values, present, &before, out_dtype)));
          kernels::reduce(pointers, dtype, out.data(), out_dtype, false, n);
          EXPECT_TRUE(same(widened(out, out_dtype), plain_reduce(values, present, nullptr, out_dtype)));
        }
      }
    }
  }
}

TEST_P(Sums, NoInputIsZero) {
  const OnTarget target(GetParam());
  std::vector<float> out(11, 7.0F);
  kernels::reduce({}, DType::fp32, out.data(), DType::fp32, false, 11);
  EXPECT_EQ(out, std::vector<float>(11, 0.0F));
}

TEST_P(Sums, OutMayBeOneOfTheInputs) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(22);
  const std::vector<float> a = testing::normal(random, 1001), b = testing::normal(random, 1001);
  std::vector<float> out = b;
  const void* inputs[] = {a.data(), out.data()};
  kernels::reduce(inputs, DType::fp32, out.data(), DType::fp32, false, 1001);
  EXPECT_TRUE(same(out, plain_reduce({a, b}, {true, true}, nullptr, DType::fp32)));
}

// H1 of the accumulation: bf16 sums stall where fp32 ones do not.
TEST_P(Sums, AccumulatorKeepsItsDType) {
  const OnTarget target(GetParam());
  const uint16_t one = 0x3F80;
  const void* input = &one;
  float wide = 0;
  uint16_t narrow = 0;
  for (int k = 0; k < 512; ++k) {
    kernels::reduce({&input, 1}, DType::bf16, &wide, DType::fp32, true, 1);
    kernels::reduce({&input, 1}, DType::bf16, &narrow, DType::bf16, true, 1);
  }
  EXPECT_EQ(wide, 512);
  EXPECT_EQ(narrow, 0x4380);  // 256
}

TEST_P(Sums, SquaresComeInThePrescribedOrder) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(23);
  std::vector<int64_t> sizes{100, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 20000};
  for (int64_t n = 0; n <= 70; ++n) sizes.push_back(n);
  for (const int64_t n : sizes) {
    for (const DType dtype : testing::kDTypes) {
      const std::vector<std::byte> x = in_dtype(testing::normal(random, n, 30), dtype);
      EXPECT_EQ(kernels::sum_of_squares(x.data(), dtype, n), plain_sum_of_squares(widened(x, dtype))) << n;
    }
  }
}

TEST_P(Sums, SquaresNeitherOverflowNorLoseSubnormals) {
  const OnTarget target(GetParam());
  const std::vector<float> large(100, 3e38F), small(100, 1e-45F);
  EXPECT_TRUE(std::isfinite(kernels::sum_of_squares(large.data(), DType::fp32, 100)));
  EXPECT_GT(kernels::sum_of_squares(small.data(), DType::fp32, 100), 0);
}

TEST_P(Sums, OneNonFiniteElementShows) {
  const OnTarget target(GetParam());
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const size_t at : {size_t{0}, size_t{4095}, size_t{8191}, size_t{8200}}) {
      std::vector<float> x(8201, 1.0F);
      x[at] = bad;
      EXPECT_FALSE(std::isfinite(kernels::sum_of_squares(x.data(), DType::fp32, 8201)))
          << bad << " at " << at;
    }
  }
}

TEST_P(Sums, APieceCutAtBlocksSumsToTheSame) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(24);
  const std::vector<float> x = testing::normal(random, 3 * 4096 + 5);
  double parts = 0;
  for (int64_t i = 0; i < 3 * 4096 + 5; i += 4096) {
    parts += kernels::sum_of_squares(x.data() + i, DType::fp32, std::min<int64_t>(4096, 3 * 4096 + 5 - i));
  }
  EXPECT_EQ(kernels::sum_of_squares(x.data(), DType::fp32, 3 * 4096 + 5), parts);
}

INSTANTIATE_TEST_SUITE_P(Targets, Sums,
                         ::testing::ValuesIn(kernels::available_targets().begin(),
                                             kernels::available_targets().end()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aliquot
