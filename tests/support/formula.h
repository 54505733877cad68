// Deterministic numbers by formula, the same as those behind tests/golden (an integer hash, so they need no
// data files).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <vector>

namespace aliquot::test {

inline uint32_t mix(uint64_t i, uint64_t salt) {
  auto h = static_cast<uint32_t>(i * 2654435761U + salt * 2246822519U);
  h ^= h >> 15;
  h *= 3266489917U;
  h ^= h >> 13;
  h *= 668265263U;
  return h ^ (h >> 16);
}

/// In [-0.5, 0.5), a multiple of 2^-24.
inline double unit(uint64_t i, uint64_t salt) {
  return (mix(i, salt) >> 8) / 16777216.0 - 0.5;
}

/// offset + scale · unit(i, salt), computed in double and rounded once.
inline at::Tensor values(at::IntArrayRef shape, uint64_t salt, double scale = 1.0, double offset = 0.0) {
  at::Tensor out = at::empty(shape, at::kFloat);
  auto* data = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    data[i] = static_cast<float>(offset + scale * unit(static_cast<uint64_t>(i), salt));
  }
  return out;
}

inline at::Tensor integers(at::IntArrayRef shape, uint64_t salt, int64_t below) {
  at::Tensor out = at::empty(shape, at::kLong);
  auto* data = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < out.numel(); ++i) data[i] = mix(static_cast<uint64_t>(i), salt) % below;
  return out;
}

}  // namespace aliquot::test
