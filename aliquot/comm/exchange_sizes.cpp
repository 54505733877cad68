#include "aliquot/comm/exchange_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "aliquot/error.h"

namespace aliquot {

void ExchangeSizes::write_row(std::byte* row, std::span<const size_t> send, std::span<const size_t> recv) {
  std::memcpy(row, send.data(), send.size_bytes());
  std::memcpy(row + send.size_bytes(), recv.data(), recv.size_bytes());
}

void ExchangeSizes::read_row(size_t rank, const std::byte* row) {
  std::memcpy(&rows_[rank * 2 * world_], row, row_bytes());
}

size_t ExchangeSizes::offset(size_t from, size_t to) const {
  size_t total = 0;
  for (size_t r = 0; r < to; ++r) total += rows_[from * 2 * world_ + r];
  return total;
}

size_t ExchangeSizes::longest() const {
  size_t most = 0;
  for (size_t r = 0; r < world_; ++r) most = std::max(most, offset(r, world_));
  return most;
}

void ExchangeSizes::check(std::string_view what) const {
  for (size_t from = 0; from < world_; ++from) {
    for (size_t to = 0; to < world_; ++to) {
      const size_t sent = rows_[from * 2 * world_ + to], expected = rows_[to * 2 * world_ + world_ + from];
      if (sent == expected) continue;
      throw CommError(fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}", what, from, sent,
                                  to, expected));
    }
  }
}

}  // namespace aliquot
