// What an operator does with its tensor arguments: reads their data, writes them, or only looks at their
// shape.
#pragma once

#include <ATen/record_function.h>

#include <cstddef>
#include <vector>

namespace aliquot {

enum class Access : unsigned char {
  none,  ///< views and metadata: `t`, `view`, `detach`, `empty_like`, …: gathering for them would stream the
         ///< model
  read,
  write,  ///< in-place and out= arguments
};

/// Of one operator, by argument position.
struct OpFacts {
  std::vector<Access> arguments;
  Access argument(size_t i) const { return i < arguments.size() ? arguments[i] : Access::none; }
};

/// Computed from the operator's schema once and cached by the operator's name pointer (asking for a schema
/// copies it, about a microsecond). Thread-safe. Recorded functions that are no operators (marks such as
/// autograd's own "detach") read nothing themselves: what they call is recorded too.
const OpFacts& facts_of(const at::RecordFunction& fn);

}  // namespace aliquot
