#include "aliquot/config/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

namespace aliquot {
namespace {

// As many as a person reads; a file with more is no ds_config.json.
constexpr size_t kShown = 50;

std::string joined(const std::vector<std::string>& messages) {
  if (messages.size() == 1) return messages.front();
  const size_t shown = std::min(messages.size(), kShown);
  std::string out = fmt::format("{} errors\n{}", messages.size(),
                                fmt::join(messages.begin(), messages.begin() + shown, "\n"));
  if (shown < messages.size()) out += fmt::format("\nand {} more", messages.size() - shown);
  return out;
}

}  // namespace

ConfigErrors::ConfigErrors(std::vector<std::string> messages)
    : ConfigError(joined(messages)), messages_(std::move(messages)) {}

void Findings::error(json::Position at, const std::string& path, const std::string& text) {
  errors_.push_back({at, path, text});
}
void Findings::warn(json::Position at, const std::string& path, const std::string& text) {
  warnings_.push_back({at, path, text});
}
void Findings::note(json::Position at, const std::string& path, const std::string& text) {
  notes_.push_back({at, path, text});
}

bool Findings::failed(const std::string& path) const {
  return std::ranges::any_of(
      errors_, [&](const Finding& f) { return f.path == path || f.path.starts_with(path + "."); });
}

void Findings::throw_errors() const {
  if (!errors_.empty()) throw ConfigErrors(errors());
}

std::string Findings::place(json::Position at) const {
  return at.line == 0 ? file_ : fmt::format("{}:{}:{}", file_, at.line, at.column);
}

std::vector<std::string> Findings::lines(std::vector<Finding> findings) const {
  const auto order = [](const Finding& f) { return std::tuple(f.at.line == 0, f.at.line, f.at.column); };
  std::ranges::stable_sort(findings, {}, order);
  std::vector<std::string> out;
  for (const Finding& f : findings) {
    out.push_back(fmt::format("{}: {}{}{}", place(f.at), f.path, f.path.empty() ? "" : ": ", f.text));
  }
  return out;
}

}  // namespace aliquot
