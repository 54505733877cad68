// The last words of a rank, on their way to the launcher.
//
// The launcher gives every rank a pipe of its own (ALIQUOT_REPORT_FD). A rank that fails writes its exit code
// and its whole message there instead of on standard error, and the launcher prints the message of the rank
// that failed first, once and last. Without a launcher of ours there is no pipe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aliquot {

struct FailureReport {
  int code = 0;  ///< an ExitCode
  std::string message;
};

/// Hands `report` to the launcher. False if there is none, or it is gone: the message is then the caller's to
/// print.
bool report_failure(const FailureReport& report);

/// The report in what came out of a rank's pipe; nothing if it holds no whole one.
std::optional<FailureReport> parse_report(std::string_view bytes);

/// Writes a report to a pipe; false if it cannot. May be used between fork and exec.
bool write_report(int fd, const FailureReport& report);

}  // namespace aliquot
