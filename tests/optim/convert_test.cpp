// widen and narrow against rounding done in double by another method.
#include "testing.h"

namespace aliquot {
namespace {

using testing::OnTarget;

struct Format {
  DType dtype;
  int mantissa_bits, min_exponent, max_exponent;
};
constexpr Format kBf16{DType::bf16, 7, -126, 127};
constexpr Format kFp16{DType::fp16, 10, -14, 15};

// The value of a 16-bit pattern, from its parts.
double value_of(const Format& f, uint16_t bits) {
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> f.mantissa_bits;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == f.max_exponent - f.min_exponent + 2) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, f.min_exponent - f.mantissa_bits);
  return sign *
         std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - 1 + f.min_exponent - f.mantissa_bits);
}

// x rounded to nearest even: to a multiple of the spacing at its magnitude, by the rounding of a double to an
// integer.
double rounded(const Format& f, float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), f.min_exponent);
  const double spacing = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double result = std::nearbyint(static_cast<double>(x) / spacing) * spacing;
  return std::abs(result) >= std::ldexp(1.0, f.max_exponent + 1) ? std::copysign(INFINITY, result) : result;
}

uint16_t narrowed(const Format& f, float x) {
  uint16_t bits = 0;
  kernels::narrow(&x, &bits, f.dtype, 1);
  return bits;
}

void expect_narrow(const Format& f, const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  kernels::narrow(values.data(), bits.data(), f.dtype, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = rounded(f, values[i]);
    const double got = value_of(f, bits[i]);
    const bool equal = std::isnan(expected) ? std::isnan(got) : got == expected;
    ASSERT_TRUE(equal && (bits[i] >> 15 != 0) == std::signbit(values[i]))
        << name_of(f.dtype) << " of " << std::hexfloat << values[i] << " is " << got << ", expected "
        << expected;
  }
}

class Convert : public ::testing::TestWithParam<const char*> {};

TEST_P(Convert, WidenGivesTheValueOfEveryPattern) {
  const OnTarget target(GetParam());
  std::vector<uint16_t> patterns(65536);
  std::vector<float> values(patterns.size());
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  for (const Format& f : {kBf16, kFp16}) {
    kernels::widen(patterns.data(), f.dtype, values.data(), 65536);
    for (size_t i = 0; i < patterns.size(); ++i) {
      const double expected = value_of(f, patterns[i]);
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(values[i]) : values[i] == expected)
          << name_of(f.dtype) << " " << i;
      ASSERT_EQ(std::signbit(values[i]), i >> 15 != 0) << name_of(f.dtype) << " " << i;
    }
  }
}

TEST_P(Convert, NarrowUndoesWiden) {
  const OnTarget target(GetParam());
  for (const Format& f : {kBf16, kFp16}) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      float value = 0;
      kernels::widen(&bits, f.dtype, &value, 1);
      const uint16_t quiet = std::isnan(value) ? static_cast<uint16_t>(1 << (f.mantissa_bits - 1)) : 0;
      ASSERT_EQ(narrowed(f, value), bits | quiet) << name_of(f.dtype);
    }
  }
}

// Around every 16-bit value and half way to the next: the float itself, and those beside it.
TEST_P(Convert, NarrowAroundEveryValueAndTie) {
  const OnTarget target(GetParam());
  for (const Format& f : {kBf16, kFp16}) {
    std::vector<float> values;
    for (uint32_t i = 0; i < 65536; ++i) {
      const double here = value_of(f, static_cast<uint16_t>(i));
      if (!std::isfinite(here)) continue;
      const double next = value_of(f, static_cast<uint16_t>(i + 1));
      const double beyond =
          std::isfinite(next) ? next : std::copysign(std::ldexp(1.0, f.max_exponent + 1), here);
      for (const double x : {here, (here + beyond) / 2}) {
        const auto nearest = static_cast<float>(x);
        values.insert(values.end(),
                      {nearest, std::nextafter(nearest, INFINITY), std::nextafter(nearest, -INFINITY)});
      }
    }
    expect_narrow(f, values);
  }
}

TEST_P(Convert, NarrowAcrossAllFloats) {
  const OnTarget target(GetParam());
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4801) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  expect_narrow(kBf16, values);
  expect_narrow(kFp16, values);
}

TEST_P(Convert, NanKeepsItsSignAndTheTopOfItsPayload) {
  const OnTarget target(GetParam());
  const auto nan = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(narrowed(kBf16, nan(0x7F800001)), 0x7FC0);
  EXPECT_EQ(narrowed(kBf16, nan(0xFFABCDEF)), 0xFFEB);
  EXPECT_EQ(narrowed(kBf16, nan(0x7FFFFFFF)), 0x7FFF);
  EXPECT_EQ(narrowed(kFp16, nan(0x7F800001)), 0x7E00);
  EXPECT_EQ(narrowed(kFp16, nan(0xFFABCDEF)), 0xFF5E);
  EXPECT_EQ(narrowed(kFp16, nan(0x7FFFFFFF)), 0x7FFF);
}

TEST_P(Convert, StochasticRoundingIsANeighbourAndRightOnAverage) {
  const OnTarget target(GetParam());
  constexpr int64_t kMany = 100'003;
  for (const float x : {1.001F, -3.14159F, 1e-3F, -2.5e-40F, 6.1e34F}) {
    std::vector<float> in(kMany, x), back(kMany);
    std::vector<uint16_t> out(kMany);
    kernels::narrow_stochastic(in.data(), out.data(), kMany, 17, 5);
    kernels::widen(out.data(), DType::bf16, back.data(), kMany);
    const auto [low, high] = std::minmax_element(back.begin(), back.end());
    EXPECT_LE(*low, x);
    EXPECT_GE(*high, x);
    double sum = 0;
    for (const float v : back) {
      ASSERT_TRUE(v == *low || v == *high) << x << " became " << v;
      sum += v;
    }
    // Six standard deviations of a mean of two values.
    EXPECT_NEAR(sum / kMany, x, 6 * 0.5 * (*high - *low) / std::sqrt(kMany)) << x;
  }
}

TEST_P(Convert, StochasticRoundingDependsOnKeyAndIndexAlone) {
  const OnTarget target(GetParam());
  std::vector<float> in(1000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0F + 0.37F * static_cast<float>(i) / 1000;
  std::vector<uint16_t> whole(1000), parts(1000), other(1000);
  kernels::narrow_stochastic(in.data(), whole.data(), 1000, 3, 1'000'000);
  for (int64_t begin = 0, n = 1; begin < 1000; begin += n, n += 3) {
    n = std::min<int64_t>(n, 1000 - begin);
    kernels::narrow_stochastic(in.data() + begin, parts.data() + begin, n, 3, 1'000'000 + begin);
  }
  EXPECT_EQ(whole, parts);
  kernels::use_target("SCALAR");
  kernels::narrow_stochastic(in.data(), parts.data(), 1000, 3, 1'000'000);
  EXPECT_EQ(whole, parts) << "the scalar target gives other bits";
  kernels::narrow_stochastic(in.data(), other.data(), 1000, 4, 1'000'000);
  EXPECT_NE(whole, other);
  const std::vector<float> odd{std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               0.0F,
                               -0.0F,
                               1.5F};
  std::vector<uint16_t> exact(6), same(6);
  kernels::narrow(odd.data(), exact.data(), DType::bf16, 6);
  kernels::narrow_stochastic(odd.data(), same.data(), 6, 9, 0);
  EXPECT_EQ(exact, same);
}

TEST_P(Convert, Fp32IsACopyOfTheBits) {
  const OnTarget target(GetParam());
  auto random = testing::seeded(11);
  const std::vector<float> values = testing::any_floats(random, 1000);
  std::vector<float> out(values.size());
  kernels::narrow(values.data(), out.data(), DType::fp32, 1000);
  EXPECT_EQ(std::memcmp(values.data(), out.data(), 4000), 0);
  kernels::widen(values.data(), DType::fp32, out.data(), 1000);
  EXPECT_EQ(std::memcmp(values.data(), out.data(), 4000), 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Convert,
                         ::testing::ValuesIn(kernels::available_targets().begin(),
                                             kernels::available_targets().end()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aliquot
