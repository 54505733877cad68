#include "aliquot/comm/fd_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "aliquot/error.h"

namespace aliquot::shm {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC;

[[noreturn]] void fail(std::string_view what) {
  throw CommError(fmt::format("passing shared memory: {}: {}", what, std::strerror(errno)));
}

Fd open_socket() {
  Fd opened(socket(AF_UNIX, kType, 0));
  if (!opened) fail("socket");
  return opened;
}

struct Address {
  explicit Address(const std::string& name)
      : size(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) {
    un.sun_family = AF_UNIX;
    // The zero byte before the name makes it abstract.
    std::memcpy(un.sun_path + 1, name.data(), std::min(name.size(), sizeof(un.sun_path) - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }

  sockaddr_un un{};
  socklen_t size;
};

bool same_user(const Fd& peer) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

void wait_readable(const Fd& socket, Deadline deadline, std::string_view what) {
  using namespace std::chrono;
  while (true) {
    const auto left = ceil<milliseconds>(deadline - steady_clock::now()).count();
    pollfd entry{socket.get(), POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX)));
    if (ready > 0) return;
    if (ready == 0) throw CommError(fmt::format("passing shared memory: {} in time", what));
    if (errno != EINTR) fail("poll");
  }
}

/// What sendmsg and recvmsg want to know of a number and a descriptor.
struct Envelope {
  Envelope() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  int32_t number = 0;
  iovec data{&number, sizeof(number)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

}  // namespace

Listener listen_for_peers(int backlog) {
  uint64_t random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) fail("getrandom");
  Listener listener{open_socket(), fmt::format("aliquot-{:016x}{:016x}", random[0], random[1])};
  const Address address(listener.name);
  if (bind(listener.socket.get(), address.get(), address.size) != 0) fail("bind");
  if (listen(listener.socket.get(), backlog) != 0) fail("listen");
  return listener;
}

Fd accept_peer(const Listener& listener, Deadline deadline) {
  while (true) {
    wait_readable(listener.socket, deadline, "a rank did not connect");
    Fd peer(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer && errno != EINTR && errno != ECONNABORTED) fail("accept");
    if (peer && same_user(peer)) return peer;
  }
}

Fd connect_to(const std::string& name) {
  Fd opened = open_socket();
  const Address address(name);
  if (connect(opened.get(), address.get(), address.size) != 0) fail("cannot reach rank 0");
  if (!same_user(opened))
    throw CommError("passing shared memory: another user's process listens in place of rank 0");
  return opened;
}

std::pair<Fd, Fd> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, kType, 0, ends) != 0) fail("socketpair");
  return {Fd(ends[0]), Fd(ends[1])};
}

void send_message(const Fd& socket, int number, int fd) {
  Envelope envelope;
  envelope.number = number;
  if (fd < 0) {
    envelope.header.msg_control = nullptr;
    envelope.header.msg_controllen = 0;
  } else {
    cmsghdr* rights = CMSG_FIRSTHDR(&envelope.header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  if (sendmsg(socket.get(), &envelope.header, MSG_NOSIGNAL) < 0) fail("cannot send");
}

Message receive_message(const Fd& socket, Deadline deadline) {
  wait_readable(socket, deadline, "a rank sent nothing");
  Envelope envelope;
  const ssize_t bytes = recvmsg(socket.get(), &envelope.header, MSG_CMSG_CLOEXEC);
  if (bytes < 0) fail("cannot receive");
  if (bytes == 0) throw CommError("passing shared memory: the rank at the other end has ended");
  Message message{envelope.number, Fd()};
  const cmsghdr* rights = CMSG_FIRSTHDR(&envelope.header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(int));
    message.fd = Fd(fd);
  }
  // The kernel drops a descriptor that this process may not open any more.
  if ((envelope.header.msg_flags & MSG_CTRUNC) != 0) {
    throw CommError("passing shared memory: too many open files; raise `ulimit -n`");
  }
  return message;
}

}  // namespace aliquot::shm
