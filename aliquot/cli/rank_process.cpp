#include "aliquot/cli/rank_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "aliquot/cli/exit_codes.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

struct Pipe {
  Fd read = Fd(), write = Fd();
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Fd(ends[0]), Fd(ends[1])};
}

/// Takes what a descriptor has, without waiting; closes it at its end.
template <class Take>
void drain(Fd& fd, Take take) {
  std::array<char, 16384> buffer;
  // More than a pipe holds, so nothing is left behind by a writer that ended; no more, so that one that
  // writes without end cannot keep us here.
  for (int reads = 0; fd && reads < 64; ++reads) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count > 0) {
      take(std::string_view(buffer.data(), static_cast<size_t>(count)));
    } else if (count == 0) {
      fd.close();
    } else if (errno != EINTR) {
      return;
    }
  }
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

// A terminal with `tostop` set would stop a rank that prints, as its group is not in the foreground.
void reset_signals() {
  signal(SIGPIPE, SIG_DFL);
  signal(SIGTTOU, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_rank(const RankStart& start, pid_t launcher, const Pipe& output,
                              const Pipe& report) {
  // The launcher may be gone before the request is made.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher) _exit(kCannotRun);
  setpgid(0, 0);
  reset_signals();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  if (!start.own_output) {
    dup2(output.write.get(), STDOUT_FILENO);
    dup2(output.write.get(), STDERR_FILENO);
  }
  fcntl(report.write.get(), F_SETFD, 0);
  std::vector<std::string> environment = start.environment;
  environment.push_back(fmt::format("ALIQUOT_REPORT_FD={}", report.write.get()));
  execve(start.command[0].c_str(), pointers(start.command).data(), pointers(environment).data());
  write_report(report.write.get(),
               {kCannotRun, fmt::format("cannot run {}: {}", start.command[0], std::strerror(errno))});
  _exit(kCannotRun);
}

}  // namespace

// glibc 2.36 declares pidfd_open without C linkage.
Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

RankProcess::RankProcess(const RankStart& start, LineRelay::Sink output)
    : rank_(start.rank), relay_(fmt::format("[rank {}] ", start.rank), std::move(output)) {
  Pipe out = start.own_output ? Pipe() : make_pipe();
  Pipe report = make_pipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(fmt::format("cannot start rank {}: {}", rank_, std::strerror(errno)));
  if (pid == 0) become_rank(start, launcher, out, report);
  pid_ = pid;
  setpgid(pid, pid);  // here too: whichever of the two comes first, signals find the group
  pid_fd_ = open_pidfd(pid);
  if (!pid_fd_) {
    const int error = errno;
    signal(SIGKILL);
    waitpid(pid, nullptr, 0);
    pid_ = -1;
    throw Error(fmt::format("cannot watch rank {} (pidfd_open, Linux 5.3): {}", rank_, std::strerror(error)));
  }
  output_ = std::move(out.read);
  report_ = std::move(report.read);
}

RankProcess::~RankProcess() {
  if (!alive()) return;
  signal(SIGKILL);
  reap();
}

void RankProcess::read_output() {
  drain(output_, [&](std::string_view bytes) { relay_.feed(bytes); });
}

void RankProcess::read_report() {
  drain(report_, [&](std::string_view bytes) { report_bytes_ += bytes; });
}

void RankProcess::signal(int signal) {
  if (alive()) kill(-pid_, signal);
}

void RankProcess::reap() {
  // While the rank is not reaped its number is its own, so the group cannot be another's.
  siginfo_t info;
  while (waitid(P_PIDFD, static_cast<id_t>(pid_fd_.get()), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  signal(SIGKILL);
  int status = 0;
  rusage usage{};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  peak_bytes_ = int64_t{usage.ru_maxrss} * 1024;
  read_output();
  read_report();
  relay_.finish();
  parsed_ = parse_report(report_bytes_);
  output_.close();
  report_.close();
  pid_fd_.close();
}

}  // namespace aliquot
