#include "aliquot/data/permutation.h"

#include <algorithm>
#include <bit>

#include "aliquot/error.h"

namespace aliquot {

namespace {

// Four rounds make a Feistel network with good round functions indistinguishable from random (Luby and
// Rackoff 1988); two more cost nothing here and help the tiny domains, whose halves are a bit or two.
constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(static_cast<uint64_t>(size)), key_(key), half_bits_(1) {
  check(size >= 1 && size <= (int64_t{1} << 62), "a permutation needs 1 to 2^62 elements");
  const int bits = std::bit_width(size_ - 1);
  half_bits_ = std::max(1, (bits + 1) / 2);
}

uint64_t Permutation::feistel(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_, right = x & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed = mix64(mix64(key_ + static_cast<uint64_t>(round)) ^ right) & mask;
    left ^= mixed;
    std::swap(left, right);
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t i) const {
  check(i >= 0 && static_cast<uint64_t>(i) < size_, "a permutation's argument lies outside it");
  uint64_t x = static_cast<uint64_t>(i);
  do x = feistel(x);
  while (x >= size_);
  return static_cast<int64_t>(x);
}

}  // namespace aliquot
