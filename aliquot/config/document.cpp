#include "aliquot/config/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "aliquot/config/coerce.h"
#include "aliquot/error.h"

namespace aliquot::schema {
namespace {

std::string names(const char* label, const std::vector<std::string>& others) {
  return others.empty() ? "" : fmt::format(" ({} `{}`)", label, fmt::join(others, "`, `"));
}

std::string fate(const Key& key) {
  if (!key.replaced_by.empty()) {
    return fmt::format("Deprecated: {}; write `{}`.", key.meaning, key.replaced_by);
  }
  switch (key.support) {
    case Support::works:
      return key.meaning + ".";
    case Support::no_effect:
      return fmt::format("No effect: {}.", key.meaning);
    case Support::off:
      return "Read only while the block is on.";
    case Support::refused: {
      std::string allowed;
      for (const Scalar& s : key.asks_nothing) {
        allowed += fmt::format("{}`{}`", allowed.empty() ? "" : ", ", show(s));
      }
      return fmt::format("Refused unless {}: {}.", allowed.empty() ? "off" : allowed, key.meaning);
    }
  }
  return "";
}

std::string first_capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string row(const Key& key) {
  const bool nested = key.type == Type::block;
  const std::string auto_too = key.takes_auto ? ", `\"auto\"`" : "";
  const std::string fallback = key.fallback.empty() ? "" : fmt::format("{}", key.fallback);
  return fmt::format("| `{}`{}{} | {}{} | {} | {} |\n", key.name, names("also", key.aliases),
                     names("once", key.old_names), nested ? "block" : type_name(key), auto_too, fallback,
                     first_capital(fate(key)));
}

constexpr std::string_view kOpen = "<!-- keys: ";
constexpr std::string_view kClose = "<!-- end -->";

}  // namespace

std::string title(const Section& section) {
  if (section.path.empty()) return "top level";
  if (section.types.empty()) return section.path;
  return fmt::format("{} of {}", section.path, fmt::join(section.types, ", "));
}

std::string markdown_table(const Section& section) {
  std::string out = "| key | type | default | here |\n|---|---|---|---|\n";
  for (const Key& key : section.keys) out += row(key);
  return out;
}

std::string with_tables(const std::string& page) {
  std::string out = page;
  for (const Section& section : sections()) {
    const std::string open = fmt::format("{}{} -->\n", kOpen, title(section));
    const size_t start = out.find(open);
    const size_t end = start == std::string::npos ? start : out.find(kClose, start);
    if (end == std::string::npos) throw InternalError("docs: no place for the keys of " + title(section));
    out.replace(start + open.size(), end - start - open.size(), markdown_table(section));
  }
  size_t places = 0;
  for (size_t at = out.find(kOpen); at != std::string::npos; at = out.find(kOpen, at + 1)) ++places;
  check(places == sections().size(), "docs: a place for keys of no section");
  return out;
}

}  // namespace aliquot::schema
