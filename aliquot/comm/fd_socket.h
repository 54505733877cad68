// Unix sockets over which ranks of one host pass file descriptors (SCM_RIGHTS). Torch-free.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "aliquot/comm/shm_segment.h"

namespace aliquot::shm {

using Deadline = std::chrono::steady_clock::time_point;

/// A listening socket in the abstract namespace, gone with its last descriptor, under a random name.
struct Listener {
  Fd socket;
  std::string name;
};
Listener listen_for_peers(int backlog);

/// The next peer of the same user; strangers who guessed the name are turned away. Throws CommError at
/// `deadline`.
Fd accept_peer(const Listener& listener, Deadline deadline);
/// Connects to a listener of the same user.
Fd connect_to(const std::string& name);
/// Two ends for ranks of one process, or to be passed on.
std::pair<Fd, Fd> socket_pair();

/// One message: a number, and a descriptor unless it is -1.
void send_message(const Fd& socket, int number, int fd);
struct Message {
  int number = 0;
  Fd fd;
};
/// Throws CommError if the other end is closed, or at `deadline`.
Message receive_message(const Fd& socket, Deadline deadline);

}  // namespace aliquot::shm
