// A seeded permutation of 0 … size−1 that stores nothing: shuffling an epoch of any length costs no memory.
//
// A balanced Feistel network permutes the next even power of two; values that fall outside are sent through
// it again until one falls inside ("cycle walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains,
// 2002). Fewer than four rounds of walking are needed on average, since the power of two is below 4·size.
#pragma once

#include <cstdint>

namespace aliquot {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit over all 64.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Permutation {
 public:
  /// `size` is at least 1 and at most 2^62.
  Permutation(int64_t size, uint64_t key);

  /// The image of `i`, 0 <= i < size.
  int64_t operator()(int64_t i) const;

 private:
  uint64_t feistel(uint64_t x) const;

  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace aliquot
