// Messages to people, on standard error: `log::warn("…", args…)`, in fmt's format.
//
// Rank 0 speaks unless a message concerns one rank alone; `only_on_rank0` is decided by the caller.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace aliquot::log {

/// Takes whole lines, newline included.
using Sink = std::function<void(std::string_view line)>;

struct Output {
  std::mutex mutex;
  Sink sink;
};
inline Output& output() {
  static Output output;
  return output;
}

/// Sends messages to `sink` instead of standard error, where a progress line is being drawn
/// (observe/progress.h); an empty one gives them back. Returns once no message is in the old sink any more.
inline void set_sink(Sink sink) {
  const std::scoped_lock lock(output().mutex);
  output().sink = std::move(sink);
}

inline void line(std::string_view level, std::string_view text) {
  const std::string whole = fmt::format("aliquot: {}{}\n", level, text);
  const std::scoped_lock lock(output().mutex);
  if (output().sink)
    output().sink(whole);
  else
    std::fwrite(whole.data(), 1, whole.size(), stderr);
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
