#include "aliquot/comm/purpose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "aliquot/error.h"

namespace aliquot {
namespace {

std::string describe(int rank, const Purpose& purpose) {
  constexpr std::string_view kNames[] = {"barrier",   "all_gather", "all_to_all",
                                         "broadcast", "share",      "channel"};
  const std::string root = purpose.op == Op::broadcast ? fmt::format(" from rank {}", purpose.root) : "";
  return fmt::format("rank {} is in {}{} of {} bytes (\"{}\")", rank, kNames[static_cast<size_t>(purpose.op)],
                     root, purpose.bytes, purpose.what);
}

}  // namespace

Purpose::Purpose(Op op, int root, size_t bytes, std::string_view text) : op(op), root(root), bytes(bytes) {
  std::memcpy(what, text.data(), std::min(text.size(), sizeof(what) - 1));
}

void check_same(uint64_t number, int rank, const Purpose& mine, int other, const Purpose& theirs) {
  if (std::memcmp(&mine, &theirs, sizeof(Purpose)) == 0) return;
  throw CommError(fmt::format(
      "the ranks diverged at meeting {}: {}, {}; every rank must make the same calls in the same order",
      number, describe(rank, mine), describe(other, theirs)));
}

}  // namespace aliquot
