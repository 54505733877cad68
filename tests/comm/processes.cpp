#include "tests/comm/processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/shm_group.h"

namespace aliquot::test {
namespace {

using namespace std::chrono_literals;

constexpr int kMostRanks = 16;

template <typename Done>
void wait_until(const Done& done) {
  for (const auto start = std::chrono::steady_clock::now(); !done(); std::this_thread::sleep_for(1ms)) {
    if (std::chrono::steady_clock::now() - start > 30s) throw std::runtime_error("the ranks did not start");
  }
}

}  // namespace

struct Processes::Shared {
  std::atomic<pid_t> pids[kMostRanks];
  std::atomic<int> connected;

  Comm connect(const shm::Listener& listener, int rank, int world, std::chrono::milliseconds timeout) {
    pids[rank] = getpid();
    std::vector<pid_t> known;
    for (int r = 0; r < world; ++r) {
      wait_until([&] { return pids[r] != 0; });
      known.push_back(pids[r]);
    }
    const size_t bytes = shm::control_bytes(world);
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    shm::Fd memory;
    shm::Links links;
    if (rank == 0) {
      memory = shm::create_memory(bytes);
      links = shm::Links::accept(listener, world, deadline);
      links.give(memory);
    } else {
      links = shm::Links::join(listener.name, rank);
      memory = links.take_by(deadline);
    }
    auto control = links.map(memory, bytes);
    const shm::Group::Member member{rank, world, timeout, std::make_shared<const Peers>(known)};
    ++connected;
    return CommImpl::handle(
        make_shm_comm(std::make_unique<shm::Group>(member, std::move(control), std::move(links))));
  }
};

Processes::Processes(int world, std::chrono::milliseconds timeout, const Body& body)
    : ranks_(static_cast<size_t>(world)) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  shared_ = new (memory) Shared();
  const shm::Listener listener = shm::listen_for_peers(world);
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    Rank& child = ranks_[static_cast<size_t>(rank)];
    child.pid = fork();
    if (child.pid == 0) {
      std::string last;
      try {
        last = body(shared_->connect(listener, rank, world, timeout));
      } catch (const std::exception& e) {
        last = e.what();
      }
      const bool written = write(ends[1], last.data(), last.size()) == static_cast<ssize_t>(last.size());
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    child.output = ends[0];
  }
}

Processes::~Processes() {
  for (Rank& rank : ranks_) {
    if (!rank.ended) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
    close(rank.output);
  }
  munmap(shared_, sizeof(Shared));
}

void Processes::wait_until_connected() const {
  wait_until([&] { return shared_->connected == static_cast<int>(ranks_.size()); });
}

void Processes::signal(int rank, int number) const {
  kill(pid(rank), number);
}

std::string Processes::result(int rank) {
  Rank& child = ranks_[static_cast<size_t>(rank)];
  if (child.ended) return child.result;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(child.output, buffer, sizeof(buffer))) > 0;) {
    child.result.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(child.pid, &status, 0);
  child.ended = true;
  if (WIFSIGNALED(status)) child.result = fmt::format("signal {}", WTERMSIG(status));
  return child.result;
}

}  // namespace aliquot::test
