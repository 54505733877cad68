// One rank of the tests of connect(): joins as the environment says, does what its arguments say, and ends
// with 0, or with 3 and the message of a CommError or ConfigError on standard error.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "aliquot/comm/comm.h"
#include "aliquot/error.h"
#include "tests/comm/collectives.h"

namespace aliquot {
namespace {

void exchange(const Comm& comm, unsigned seed) {
  test::run_collectives(comm, seed, 60, 600'000);
  const Comm channel = comm.channel("parameters");
  test::run_collectives(channel, seed + 1, 20, 600'000);
  const auto segment = comm.share(1000, "segment");
  test::expect((segment != nullptr) == (comm.backend() == "shm"), "segments are for shared memory");
}

[[noreturn]] void loop(const Comm& comm, int victim, int signal) {
  for (int i = 0;; ++i) {
    comm.barrier("publish");
    if (i == 20 && comm.rank() == victim) raise(signal);
  }
}

void diverge(const Comm& comm) {
  std::byte bytes[64] = {};
  comm.barrier("start");
  if (comm.rank() == 0)
    comm.broadcast(bytes, 8, 0, "weights");
  else
    comm.broadcast(bytes, 16, 0, "weights");
}

void abort(const Comm& comm) {
  comm.barrier("start");
  if (comm.rank() == 0) {
    comm.abort("loss is not finite");
    throw std::runtime_error("loss is not finite");
  }
  comm.barrier("publish");
}

void run(const Comm& comm, const std::string& task, const std::string& argument) {
  if (task == "exchange") exchange(comm, static_cast<unsigned>(std::stoul(argument)));
  if (task == "kill") loop(comm, std::stoi(argument), SIGKILL);
  if (task == "stop") loop(comm, std::stoi(argument), SIGSTOP);
  if (task == "diverge") diverge(comm);
  if (task == "abort") abort(comm);
  if (task == "exit") std::exit(0);
  // A Comm that nothing destroys, as in a program that ends from deep within.
  if (task == "leak") new Comm(comm.channel("leaked"));
}

int number(const char* name) {
  return std::atoi(std::getenv(name));
}

}  // namespace
}  // namespace aliquot

// comm_rank BACKEND TIMEOUT_MS JOIN_TIMEOUT_MS TASK [ARGUMENT]
int main(int argc, char** argv) {
  using namespace aliquot;
  Rendezvous r;
  r.rank = r.local_rank = number("RANK");
  r.world = r.local_world = number("WORLD_SIZE");
  r.master_port = number("MASTER_PORT");
  r.source = "RANK";
  const std::chrono::milliseconds timeout(std::stoi(argv[2])), join_timeout(std::stoi(argv[3]));
  try {
    const auto start = std::chrono::steady_clock::now();
    const Comm comm =
        Comm::connect(r, {.backend = argv[1], .timeout = timeout, .join_timeout = join_timeout});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    fmt::print("{} {:.1f}\n", comm.backend(), took.count());
    run(comm, argv[4], argc > 5 ? argv[5] : "");
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 3;
  }
  return 0;
}
