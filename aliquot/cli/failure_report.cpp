#include "aliquot/cli/failure_report.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace aliquot {
namespace {

std::optional<int> take_number(std::string_view& text, char end_mark) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != end_mark) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return value;
}

}  // namespace

// "CODE LENGTH MESSAGE": the length tells a message from the beginning of one.
bool write_report(int fd, const FailureReport& report) {
  const std::string text = fmt::format("{} {} {}", report.code, report.message.size(), report.message);
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::optional<FailureReport> parse_report(std::string_view bytes) {
  const auto code = take_number(bytes, ' ');
  const auto length = code ? take_number(bytes, ' ') : std::nullopt;
  if (!length || *length < 0 || bytes.size() < static_cast<size_t>(*length)) return std::nullopt;
  return FailureReport{*code, std::string(bytes.substr(0, static_cast<size_t>(*length)))};
}

bool report_failure(const FailureReport& report) {
  const char* text = std::getenv("ALIQUOT_REPORT_FD");
  if (text == nullptr) return false;
  const int fd = std::atoi(text);
  return fd > 2 && write_report(fd, report);
}

}  // namespace aliquot
