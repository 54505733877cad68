#include "aliquot/comm/peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

namespace aliquot {
namespace {

// Without a pidfd. A process that has ended but is not yet waited for still takes signals: its state is Z.
bool ended_by_number(pid_t pid) {
  if (kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::stringstream text;
  text << file.rdbuf();
  // The program's name, in brackets, may contain anything.
  const size_t name_end = text.str().rfind(") ");
  return name_end != std::string::npos && text.str()[name_end + 2] == 'Z';
}

}  // namespace

Peers::Peers(const std::vector<pid_t>& pids, bool pidfds) {
  for (const pid_t pid : pids) {
    Process& process = processes_.emplace_back();
    if (pid == 0 || pid == getpid()) continue;
    process.pid = pid;
    if (!pidfds) continue;
    process.pidfd = shm::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    process.gone = !process.pidfd && errno == ESRCH;
  }
}

bool Peers::ended(int rank) const {
  if (static_cast<size_t>(rank) >= processes_.size()) return false;
  const Process& process = processes_[static_cast<size_t>(rank)];
  if (process.pid == 0) return false;
  if (process.gone) return true;
  if (!process.pidfd) return ended_by_number(process.pid);
  pollfd entry{process.pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

std::string Peers::name(int rank) const {
  const bool watched =
      static_cast<size_t>(rank) < processes_.size() && processes_[static_cast<size_t>(rank)].pid != 0;
  return watched ? fmt::format("rank {} (pid {})", rank, processes_[static_cast<size_t>(rank)].pid)
                 : fmt::format("rank {}", rank);
}

}  // namespace aliquot
