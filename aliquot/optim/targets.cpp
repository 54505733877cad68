#include "aliquot/optim/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/error.h"
#include "aliquot/optim/kernels.h"
#include "hwy/targets.h"

namespace aliquot::kernels {
namespace {

const std::vector<int64_t>& supported() {
  static const std::vector<int64_t> targets = [] {
    std::vector<int64_t> found;
    for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON, HWY_SCALAR}) {
      const bool runs = target == HWY_SCALAR || (hwy::SupportedTargets() & target) != 0;
      if (runs && (HWY_TARGETS & target) != 0) found.push_back(target);
    }
    return found;
  }();
  return targets;
}

int64_t& in_use() {
  static int64_t target = supported().front();
  return target;
}

/// "avx512" is what people call Highway's AVX3; case does not matter.
std::string canonical(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper == "AVX512" ? "AVX3" : upper;
}

void pin(std::string_view name, std::string_view source) {
  for (const int64_t target : supported()) {
    if (canonical(name) != hwy::TargetName(target)) continue;
    in_use() = target;
    hwy::GetChosenTarget().Update(target);
    return;
  }
  throw UsageError(fmt::format("{}: this machine has no SIMD target \"{}\"; it has {}", source, name,
                               fmt::join(available_targets(), ", ")));
}

bool choose_from_environment() {
  const char* wanted = std::getenv("ALIQUOT_SIMD");
  // Left alone, Highway takes the best target, and other users of it in the process keep theirs.
  if (wanted != nullptr && *wanted != '\0') pin(wanted, "ALIQUOT_SIMD");
  return true;
}

}  // namespace

void choose_target() {
  [[maybe_unused]] static const bool chosen = choose_from_environment();
}

std::span<const char* const> available_targets() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> found;
    for (const int64_t target : supported()) found.push_back(hwy::TargetName(target));
    return found;
  }();
  return names;
}

const char* current_target() {
  choose_target();
  return hwy::TargetName(in_use());
}

void use_target(const char* name) {
  choose_target();
  pin(name, "use_target");
}

}  // namespace aliquot::kernels
