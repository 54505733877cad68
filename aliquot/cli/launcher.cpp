#include "aliquot/cli/launcher.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "aliquot/cli/exit_codes.h"
#include "aliquot/cli/master_port.h"
#include "aliquot/cli/post_mortem.h"
#include "aliquot/cli/rank_process.h"
#include "aliquot/comm/rendezvous.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Together below the five seconds in which a job must be over.
constexpr milliseconds kCulpritMayFail{1000};  // peers often notice before the culprit has finished dying
constexpr milliseconds kMayEndItself{2000};    // from SIGTERM to SIGKILL

/// Signals as a descriptor to poll. One that is ignored (nohup, a shell's background job) stays so.
class SignalFd {
 public:
  SignalFd() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&set_, signal);
    }
    sigprocmask(SIG_BLOCK, &set_, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);  // the job outlives the reader of our messages
    fd_ = Fd(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw Error(fmt::format("cannot receive signals: {}", std::strerror(errno)));
  }
  ~SignalFd() {
    while (next()) {  // what came while the job was ending was meant for the job
    }
    ::signal(SIGPIPE, pipe_before_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  int get() const { return fd_.get(); }
  std::optional<int> next() {
    signalfd_siginfo info;
    if (read(fd_.get(), &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t set_{}, before_{};
  sighandler_t pipe_before_ = SIG_DFL;
  Fd fd_;
};

std::vector<std::string> environment_of(int rank, const LaunchOptions& options, int master_port) {
  Environment environment = process_environment();
  environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(master_port);
  environment["ALIQUOT_LAUNCHER_PID"] = std::to_string(getpid());
  if (options.threads > 0) environment["OMP_NUM_THREADS"] = std::to_string(options.threads);
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) out.push_back(fmt::format("{}={}", name, value));
  return out;
}

class Job {
 public:
  explicit Job(const LaunchOptions& options) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      const RankStart start{.rank = rank,
                            .command = options.command,
                            .environment = environment_of(rank, options, port_.number()),
                            .own_output = rank == 0};
      ranks_.push_back(std::make_unique<RankProcess>(
          start, [](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); }));
    }
  }

  int run() {
    while (any_alive()) {
      wait();
      read_pipes();
      take_ends();
      while (const auto signal = signals_.next()) on_signal(*signal);
      on_deadlines();
    }
    if (asked_ != 0 && !post_mortem_.has_culprit()) return code_of_signal(asked_);
    if (!post_mortem_.any()) return kSuccess;
    post_mortem_.print();
    return post_mortem_.exit_code();
  }

 private:
  bool any_alive() const {
    return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->alive(); });
  }

  void signal_all(int signal) {
    sent_.insert(signal);
    for (const auto& rank : ranks_) rank->signal(signal);
  }

  void wait() {
    std::vector<pollfd> fds{{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    for (const auto& rank : ranks_) {
      // poll() leaves out those that are closed.
      for (const int fd : {rank->pid_fd(), rank->output_fd(), rank->report_fd()}) {
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      }
    }
    poll(fds.data(), fds.size(), milliseconds_left());
    ended_.clear();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (fds[1 + 3 * i].revents != 0) ended_.push_back(ranks_[i].get());
    }
  }

  int milliseconds_left() const {
    const auto next = std::min(terminate_at_.value_or(Clock::time_point::max()),
                               kill_at_.value_or(Clock::time_point::max()));
    if (next == Clock::time_point::max()) return -1;
    // Rounded up, so that the deadline has passed when poll() returns.
    return std::max(0, static_cast<int>(std::chrono::ceil<milliseconds>(next - Clock::now()).count()));
  }

  void read_pipes() {
    for (const auto& rank : ranks_) {
      rank->read_output();
      rank->read_report();
    }
  }

  void take_ends() {
    for (RankProcess* rank : ended_) {
      rank->reap();
      if (!rank->failed()) continue;
      post_mortem_.add(*rank, sent_.contains(rank->ended_by()));
      end_others();
    }
  }

  void end_others() {
    if (kill_at_ || !any_alive()) return;
    if (asked_ != 0 || post_mortem_.has_culprit()) return terminate();
    if (!terminate_at_) terminate_at_ = Clock::now() + kCulpritMayFail;
  }

  void terminate() {
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // a stopped process takes no SIGTERM
    terminate_at_.reset();
    kill_at_ = Clock::now() + kMayEndItself;
  }

  void on_deadlines() {
    const auto now = Clock::now();
    if (terminate_at_ && now >= *terminate_at_) terminate();
    if (kill_at_ && now >= *kill_at_) {
      signal_all(SIGKILL);
      kill_at_ = Clock::time_point::max();
    }
  }

  void on_signal(int signal) {
    if (signal == SIGTSTP) return stop_with_us();
    if (asked_ != 0 || kill_at_) return signal_all(SIGKILL);
    asked_ = signal;
    log::info("{}: the ranks stop after this step; once more ends them at once",
              signal == SIGINT ? "Ctrl-C" : strsignal(signal));
    signal_all(SIGINT);
  }

  void stop_with_us() {
    signal_all(SIGSTOP);
    raise(SIGSTOP);
    signal_all(SIGCONT);
  }

  SignalFd signals_;
  MasterPort port_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<RankProcess*> ended_;
  PostMortem post_mortem_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
  std::set<int> sent_;  // signals to all ranks so far
  int asked_ = 0;       // the signal that asked for a stop; 0: none did
};

}  // namespace

int launch(const LaunchOptions& options) {
  return Job(options).run();
}

}  // namespace aliquot
