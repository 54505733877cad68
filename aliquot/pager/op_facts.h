// What an operator does with its tensor arguments: reads their data, writes them, or only looks at their shape.
#pragma once

#include <ATen/record_function.h>

#include <cstddef>
#include <vector>

namespace aliquot {

enum class Access : unsigned char {
  none,   ///< views and metadata: `t`, `view`, `detach`, `empty_like`, …: gathering for them would stream the model
  read,
  write,  ///< in-place and out= arguments
};

/// Of one operator, by argument position. Arguments beyond the list are read.
struct OpFacts {
  std::vector<Access> arguments;
  Access argument(size_t i) const { return i < arguments.size() ? arguments[i] : Access::read; }
};

/// Computed from the operator's schema once and cached by the operator's name pointer (asking for a schema copies it,
/// about a microsecond). Thread-safe. Functions that are no operators read everything.
const OpFacts& facts_of(const at::RecordFunction& fn);

}  // namespace aliquot
