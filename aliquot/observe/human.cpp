#include "aliquot/observe/human.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace aliquot {

namespace {

std::string three_digits(double value) {
  // What would round up to 10.0 or 100 takes the shorter form at once.
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

/// `value` divided by `base` until it has at most three digits, with the unit reached.
template <size_t N>
std::string scaled(double value, double base, const std::array<std::string_view, N>& units) {
  size_t unit = 0;
  while (unit + 1 < N && value >= base * 0.9995) {
    value /= base;
    ++unit;
  }
  return (unit == 0 ? fmt::format("{:.0f}", value) : three_digits(value)) + std::string(units[unit]);
}

}  // namespace

std::string human_bytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string human_count(double count) {
  static constexpr std::array<std::string_view, 5> kUnits{"", "k", "M", "B", "T"};
  if (!std::isfinite(count)) return "?";
  return scaled(count, 1000, kUnits);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<int64_t>(std::min(std::round(seconds), 1e15));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

}  // namespace aliquot
