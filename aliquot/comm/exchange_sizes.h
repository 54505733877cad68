// What every rank of an all-to-all sends to, and expects from, each other. Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace aliquot {

class ExchangeSizes {
 public:
  explicit ExchangeSizes(size_t world) : world_(world), rows_(2 * world * world) {}

  /// Bytes in which a rank tells the others its sizes.
  size_t row_bytes() const { return 2 * world_ * sizeof(size_t); }
  static void write_row(std::byte* row, std::span<const size_t> send, std::span<const size_t> recv);
  void read_row(size_t rank, const std::byte* row);

  /// Where, in what `from` sends, the bytes for `to` begin.
  size_t offset(size_t from, size_t to) const;
  /// The most bytes that a rank sends.
  size_t longest() const;
  /// Throws CommError, alike on every rank, if one expects other sizes than are sent to it.
  void check(std::string_view what) const;

 private:
  size_t world_;
  std::vector<size_t> rows_;
};

}  // namespace aliquot
