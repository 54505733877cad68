// The ranks of one host as processes: started, watched and ended together.
//
// [Note: launcher]
// - Rank 0 writes to our standard output and error itself; what other ranks print appears on standard error,
// each line
//   after "[rank r] ". Nobody reads standard input.
// - The first rank that fails ends the job: the others get SIGTERM, after two seconds SIGKILL. A rank whose
// exit code says
//   that a peer failed (kPeerFailed) is no culprit; the culprit gets a second to fail by itself. Its own
//   error is printed last.
// - The first Ctrl-C (SIGINT; SIGTERM and SIGHUP too) goes to the ranks as SIGINT: they stop at the next
// step, and we wait. A
//   second one kills. Ctrl-Z stops the ranks with us.
// - Each rank is a process group of its own, and whatever it started ends with it. If we are killed
// ourselves, the kernel
//   kills the ranks (PR_SET_PDEATHSIG).
#pragma once

#include <string>
#include <vector>

namespace aliquot {

struct LaunchOptions {
  std::vector<std::string> command;  ///< program and arguments of every rank
  int ranks = 1;
  int threads = 0;  ///< OMP_NUM_THREADS of every rank; 0: as it is
};

/// Runs the ranks to their end. Returns 0 if all succeeded, 128 + signal if one was asked for (130 after
/// Ctrl-C), else the exit code of the rank that failed first (128 + signal if one killed it). Throws Error if
/// they cannot be started. Must be called from the main thread, with no other threads running.
int launch(const LaunchOptions& options);

}  // namespace aliquot
