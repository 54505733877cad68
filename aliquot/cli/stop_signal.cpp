#include "aliquot/cli/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace aliquot {
namespace {

std::atomic<bool> asked = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");

constexpr int kInterrupted = 128 + SIGINT;

void on_interrupt(int) {
  if (asked.exchange(true)) _exit(kInterrupted);
}

}  // namespace

void watch_stop_signal() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() {
  return asked;
}

}  // namespace aliquot
