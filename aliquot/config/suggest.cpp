// What a person may have meant by a key that does not exist.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

// Levenshtein distance with one row; a swap of neighbours counts two.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string> names_of(const Key& key) {
  std::vector<std::string> names = key.aliases;
  names.push_back(key.name);
  return names;
}

std::string place_of(const Section& section) {
  return section.path.empty() ? "at the top level" : "in " + section.path;
}

// Where a key of exactly that name is known: among the keys that work, else among all. A name that is known
// in many places ("enabled") says nothing.
std::string home_of(const Section& section, std::string_view name) {
  constexpr size_t kMany = 3;
  for (const bool working : {true, false}) {
    std::vector<std::string> types, places;
    for (const Section& other : sections()) {
      const Key* key = &other == &section ? nullptr : other.find(name);
      if (key == nullptr || (working && key->support != Support::works)) continue;
      if (other.path == section.path) types.insert(types.end(), other.types.begin(), other.types.end());
      const std::string place = place_of(other);
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
    if (!types.empty()) return fmt::format("{} is a parameter of {}", name, fmt::join(types, ", "));
    if (places.size() > kMany) return "";
    if (!places.empty()) return fmt::format("{} belongs {}", name, fmt::join(places, ", or "));
  }
  return "";
}

// The nearest name anywhere in the file, with its path.
std::string nearest_anywhere(std::string_view name) {
  std::vector<std::string> names, paths;
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      for (std::string& n : names_of(key)) {
        paths.push_back(join(section.path, n));
        names.push_back(std::move(n));
      }
    }
  }
  const std::string near = nearest(name, names);
  const auto index = static_cast<size_t>(std::ranges::find(names, near) - names.begin());
  return near.empty() ? "" : paths[index];
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  // Names longer than any key are no slip of the pen, and the distance costs their product.
  constexpr size_t kLongest = 100;
  if (name.size() > kLongest) return "";
  const std::string wanted = lower(name);
  std::string best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(wanted, lower(candidate));
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string suggestion(const Section& section, std::string_view name) {
  if (std::string home = home_of(section, name); !home.empty()) return home;
  std::vector<std::string> here;
  for (const Key& key : section.keys) {
    for (std::string& n : names_of(key)) here.push_back(std::move(n));
  }
  const std::string near = nearest(name, here);
  const std::string path = near.empty() ? nearest_anywhere(name) : join(section.path, near);
  return path.empty() ? "" : fmt::format("did you mean {}?", path);
}

}  // namespace aliquot::schema
