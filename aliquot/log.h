// Messages to people, on standard error: `log::warn("…", args…)`, in fmt's format.
//
// Rank 0 speaks unless a message concerns one rank alone; `only_on_rank0` is decided by the caller.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace aliquot::log {

inline void line(std::string_view level, std::string_view text) {
  fmt::print(stderr, "aliquot: {}{}\n", level, text);
}

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  line("", fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  line("warning: ", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace aliquot::log
