// One rank as a child process: started, watched through a pidfd, ended together with all that it started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aliquot/cli/failure_report.h"
#include "aliquot/cli/line_relay.h"

namespace aliquot {

/// A file descriptor that closes itself; -1 for none.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_;
};

/// Readable once process `pid` has ended; none, with errno, if the kernel has no such thing.
Fd open_pidfd(pid_t pid);

struct RankStart {
  int rank = 0;
  std::vector<std::string> command;      ///< program and arguments
  std::vector<std::string> environment;  ///< "NAME=value"; ALIQUOT_REPORT_FD is added
  bool own_output = false;  ///< the child writes to our standard output and error itself (rank 0)
};

class RankProcess {
 public:
  /// Forks and executes; call it from the main thread, since the child is killed by the kernel
  /// (PR_SET_PDEATHSIG) when the thread that made it ends. The child leads a process group of its own and
  /// reads nothing. Throws Error if the system has no more processes or descriptors; a program that cannot be
  /// executed is a report with kCannotRun.
  RankProcess(const RankStart& start, LineRelay::Sink output);
  /// Kills what still runs.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Descriptors to poll for reading; -1 once closed.
  int pid_fd() const { return pid_fd_.get(); }
  int output_fd() const { return output_.get(); }
  int report_fd() const { return report_.get(); }

  /// Reads what is there, without waiting.
  void read_output();
  void read_report();

  /// Sends `signal` to the rank's process group, if the rank lives.
  void signal(int signal);

  /// After pid_fd() became readable: drains the pipes, kills what the rank left behind, takes its exit
  /// status.
  void reap();

  bool alive() const { return pid_ > 0; }
  int rank() const { return rank_; }

  // ---- once it has ended

  bool failed() const { return exit_code_ != 0 || signal_ != 0; }
  int exit_code() const { return exit_code_; }        ///< 0 if a signal ended it
  int ended_by() const { return signal_; }            ///< a signal, or 0
  int64_t peak_bytes() const { return peak_bytes_; }  ///< largest resident size
  const std::optional<FailureReport>& report() const { return parsed_; }
  const std::string& last_line() const { return relay_.last_line(); }

 private:
  int rank_;
  pid_t pid_ = -1;
  Fd pid_fd_, output_, report_;
  LineRelay relay_;
  std::string report_bytes_;
  std::optional<FailureReport> parsed_;
  int exit_code_ = 0, signal_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace aliquot
