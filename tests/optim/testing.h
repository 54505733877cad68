// Shared by the tests of aliquot/optim.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "aliquot/optim/kernels.h"

namespace aliquot::testing {

constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};

/// Runs the rest of the scope on one SIMD target.
class OnTarget {
 public:
  explicit OnTarget(const char* name) : before_(kernels::current_target()) { kernels::use_target(name); }
  ~OnTarget() { kernels::use_target(before_); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;

 private:
  const char* before_;
};

inline std::mt19937_64 seeded(uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

/// Normal numbers times `scale`.
inline std::vector<float> normal(std::mt19937_64& random, int64_t n, float scale = 1) {
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = draw(random);
  return values;
}

/// Every kind of float: any bit pattern, so NaN, infinities, zeros and subnormals of both signs come often.
inline std::vector<float> any_floats(std::mt19937_64& random, int64_t n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {0.0F,     -0.0F,   kInf,    -kInf,   NAN,         -NAN,      1e-45F,
                                -1e-40F,  65504.F, 65519.F, 65520.F, -65536.F,    6e-8F,     2.9e-8F,
                                6.1e-05F, 1.F,     -1.F,    3.4e38F, 1.1754e-38F, 0.9999999F};
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) {
    const uint64_t bits = random();
    x = (bits >> 32) % 4 == 0 ? kSpecial[(bits >> 40) % std::size(kSpecial)]
                              : std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
  return values;
}

/// Bytes of `values` in `dtype`.
inline std::vector<std::byte> in_dtype(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  kernels::narrow(values.data(), bytes.data(), dtype, static_cast<int64_t>(values.size()));
  return bytes;
}

/// The distance of a float from the next larger one of its magnitude.
inline double ulp(double x) {
  const auto magnitude = static_cast<float>(std::abs(x));
  return std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - static_cast<double>(magnitude);
}

/// Equal bits, where any NaN equals any other.
inline bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline ::testing::AssertionResult same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << ": " << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

using Json = nlohmann::json;

inline Json golden(const std::string& file) {
  std::ifstream in(std::string(ALIQUOT_TEST_DATA) + "/" + file);
  if (!in) throw std::runtime_error("tests/golden/" + file + " is missing");
  return Json::parse(in);
}

}  // namespace aliquot::testing
