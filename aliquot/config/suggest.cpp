#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

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

std::string place(const Section& section) {
  if (section.path.empty()) return "at the top level";
  std::string types;
  for (const std::string& type : section.types) types += (types.empty() ? " of " : ", ") + type;
  return fmt::format("in {}{}", section.path, types);
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
  std::string belongs;
  for (const Section& other : sections()) {
    if (&other == &section || other.find(name) == nullptr) continue;
    belongs += (belongs.empty() ? "" : ", or ") + place(other);
  }
  if (!belongs.empty()) return fmt::format("{} belongs {}", name, belongs);

  std::vector<std::string> near;
  for (const Key& key : section.keys) {
    for (std::string& n : names_of(key)) near.push_back(std::move(n));
  }
  if (const std::string here = nearest(name, near); !here.empty()) {
    return fmt::format("did you mean {}?", join(section.path, here));
  }
  std::vector<std::string> far;
  std::vector<const Section*> owners;
  for (const Section& other : sections()) {
    for (const Key& key : other.keys) {
      for (std::string& n : names_of(key)) {
        far.push_back(std::move(n));
        owners.push_back(&other);
      }
    }
  }
  const std::string there = nearest(name, far);
  if (there.empty()) return "";
  const auto index = static_cast<size_t>(std::find(far.begin(), far.end(), there) - far.begin());
  return fmt::format("did you mean {}?", join(owners[index]->path, there));
}

}  // namespace aliquot::schema
