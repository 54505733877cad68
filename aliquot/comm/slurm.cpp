#include "aliquot/comm/slurm.h"

#include <charconv>

namespace aliquot {
namespace {

/// Takes a whole number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::string first_host(std::string_view node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t close = node_list.find(']', i);
    if (close == std::string_view::npos) return host;
    const size_t first_end = node_list.find_first_of("-,]", i);
    host += node_list.substr(i + 1, first_end - i - 1);
    i = close;
  }
  return host;
}

std::optional<int> tasks_of_node(std::string_view tasks_per_node, int node) {
  std::string_view rest = tasks_per_node;
  while (!rest.empty()) {
    const std::optional<int> tasks = take_number(rest);
    if (!tasks) return std::nullopt;
    int nodes = 1;
    if (take(rest, "(x")) {
      const std::optional<int> repeats = take_number(rest);
      if (!repeats || !take(rest, ")")) return std::nullopt;
      nodes = *repeats;
    }
    if (!rest.empty() && !take(rest, ",")) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

}  // namespace aliquot
