#include "aliquot/engine/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <vector>

#include "aliquot/error.h"

namespace aliquot {
namespace {

constexpr uint64_t kFactor =
    0x9e3779b97f4a7c15;  // odd, so that no word is lost; 2^64 divided by the golden ratio

// Depends on every word and its place. Four chains, since one multiplication waits for the last.
uint64_t sum_of(const std::byte* data, int64_t bytes) {
  std::array<uint64_t, 4> sums{1, 2, 3, 4};
  // Units are padded to 64 bytes.
  for (int64_t i = 0; i < bytes; i += 32) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), data + i, sizeof(words));
    for (size_t k = 0; k < 4; ++k) sums[k] = (sums[k] ^ words[k]) * kFactor;
  }
  return ((sums[0] * kFactor + sums[1]) * kFactor + sums[2]) * kFactor + sums[3];
}

}  // namespace

void check_replicas(const Layout& layout, UnitStore& store, Updater& updater,
                    std::span<const std::string> names, const Comm& comm) {
  std::vector<uint64_t> own;
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    const std::byte* whole = store.whole(u);
    if (whole == nullptr) continue;
    if (!updater.replicated() || !layout.unit(u).trainable) {
      own.push_back(sum_of(whole, layout.unit_bytes(u)));
      continue;
    }
    updater.states().visit({&u, 1}, [&](std::span<const StateWindow> windows) {
      own.push_back(
          sum_of(reinterpret_cast<const std::byte*>(windows[0].master), windows[0].range.numel() * 4));
    });
  }
  if (own.empty() || comm.size() == 1) return;
  std::vector<uint64_t> all(own.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(own.data(), all.data(), own.size() * sizeof(uint64_t), "compare replicas");
  for (size_t u = 0; u < own.size(); ++u) {
    std::vector<size_t> differing;
    for (size_t r = 1; r < static_cast<size_t>(comm.size()); ++r) {
      if (all[r * own.size() + u] != all[u]) differing.push_back(r);
    }
    if (differing.empty()) continue;
    const auto first = static_cast<size_t>(layout.unit(static_cast<int>(u)).segments.front().param);
    throw CommError(fmt::format(
        "the ranks' copies of unit {} (from parameter {} on) are not equal any more: rank {} differ{} from "
        "rank 0. "
        "A faulty machine, or something wrote to them other than step(); go on from the last checkpoint",
        u, names[first], fmt::join(differing, ", "), differing.size() == 1 ? "s" : ""));
  }
}

}  // namespace aliquot
