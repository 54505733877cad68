#include "aliquot/comm/listener_probe.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "aliquot/comm/shm_segment.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The first is about what rank 0 needs to listen once it runs; the last bounds the packets sent to a host
// that is still booting.
constexpr milliseconds kFirstPause(1), kLastPause(100);
// Where packets vanish instead of being refused.
constexpr milliseconds kAttempt(2000);

bool takes_connection(const addrinfo& address) {
  const shm::Fd probe(
      socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!probe) return false;
  if (connect(probe.get(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd entry{probe.get(), POLLOUT, 0};
  if (poll(&entry, 1, static_cast<int>(kAttempt.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(probe.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool somebody_listens(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    if (takes_connection(*a)) return true;
  }
  return false;
}

}  // namespace

void wait_for_listener(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause = kFirstPause; !somebody_listens(host, port);
       pause = std::min(2 * pause, kLastPause)) {
    if (Clock::now() >= deadline) throw CommError(fmt::format("nobody listens at {}:{}", host, port));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace aliquot
