// What a rank calls, compared between ranks before anything of theirs is read. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace aliquot {

enum class Op : uint32_t { barrier, all_gather, all_to_all, broadcast, share, channel };

struct Purpose {
  Purpose() = default;
  /// `bytes` as far as all ranks must say the same. Of `what` the beginning is kept.
  Purpose(Op op, int root, size_t bytes, std::string_view what);

  Op op = Op::barrier;
  int32_t root = 0;
  uint64_t bytes = 0;
  char what[112] = {};
};
static_assert(sizeof(Purpose) == 128 && std::is_trivially_copyable_v<Purpose>);

/// Throws CommError that names both ranks and what each calls, unless it is the same. `number` counts the
/// calls.
void check_same(uint64_t number, int rank, const Purpose& mine, int other, const Purpose& theirs);

}  // namespace aliquot
