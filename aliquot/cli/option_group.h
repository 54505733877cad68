// Command-line options as this project writes them, over CLI11.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aliquot {

// Beyond these a number is a typing error; CLI11 takes what passes int64_t for its largest value.
template <class Number>
inline constexpr Number kMost = std::numeric_limits<Number>::max() / 2;

/// The options of one group of the help text, with checks whose messages say what was expected.
class OptionGroup {
 public:
  OptionGroup(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  CLI::Option* text(const char* flag, std::string& value, const char* type, const char* help) {
    return app_.add_option(flag, value, help)->type_name(type)->group(name_);
  }
  CLI::Option* choice(const char* flag, std::string& value, const std::vector<std::string>& choices,
                      const char* help) {
    const auto check = [choices](const std::string& given) -> std::string {
      if (std::ranges::find(choices, given) != choices.end()) return {};
      return fmt::format("{}: expected {}", given, fmt::join(choices, ", "));
    };
    const std::string type = fmt::format("{}", fmt::join(choices, "|"));
    return text(flag, value, type.c_str(), help)->check(CLI::Validator(check, "", ""));
  }
  /// `least` and `most` are in range.
  template <class T, class Number>
  CLI::Option* number(const char* flag, T& value, Number least, Number most, const char* help) {
    const auto check = [least, most](const std::string& text) -> std::string {
      Number given{};
      if (!CLI::detail::lexical_cast(text, given)) return {};  // the conversion says so itself
      if (given >= least && given <= most) return {};
      if (most == kMost<Number>) return fmt::format("{}: expected at least {}", text, least);
      return fmt::format("{}: expected {} to {}", text, least, most);
    };
    return app_.add_option(flag, value, help)
        ->check(CLI::Validator(check, "", ""))
        ->type_name(std::is_integral_v<Number> ? "N" : "X")
        ->group(name_);
  }
  template <class T>
  CLI::Option* whole(const char* flag, T& value, int64_t least, const char* help) {
    return number(flag, value, least, kMost<int64_t>, help);
  }
  template <class T>
  CLI::Option* real(const char* flag, T& value, double least, const char* help) {
    return number(flag, value, least, kMost<double>, help);
  }
  void flag(const char* name, bool& value, const char* help) {
    app_.add_flag(name, value, help)->group(name_);
  }

 private:
  CLI::App& app_;
  std::string name_;
};

}  // namespace aliquot
