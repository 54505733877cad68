// What a process of ours ends with, so that the launcher and scripts can tell why.
#pragma once

namespace aliquot {

enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,     ///< the run failed; the message says why
  kBadInput = 2,    ///< a command line or a configuration that cannot be obeyed; nothing was started
  kPeerFailed = 3,  ///< this rank is well, but another one died, diverged or is silent
  kCannotRun = 127  ///< the program of the ranks could not be started
};

/// As shells say it: ended by signal `signal`.
constexpr int code_of_signal(int signal) {
  return 128 + signal;
}

}  // namespace aliquot
