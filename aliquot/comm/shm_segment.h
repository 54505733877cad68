// Anonymous memory that several processes map: a memfd passed from hand to hand, so that nothing has a name
// in a file system and nothing is left behind, however the ranks end. Torch-free.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "aliquot/comm/comm.h"

namespace aliquot::shm {

/// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A sealed memfd of `bytes` zero bytes whose pages are reserved, so that a lack of memory is a CommError
/// here and not a SIGBUS later.
Fd create_memory(size_t bytes);

/// Maps a memfd twice: read-only for everybody, writable for the parts one owns.
std::shared_ptr<SharedSegment> map_segment(const Fd& fd, size_t bytes);

/// A listening socket in the abstract namespace under a random name.
struct Listener {
  Fd socket;
  std::string name;
};
Listener listen_for_peers(int backlog);
/// Accepts `count` peers of the same user and gives each `fd`. Throws CommError after `timeout`.
void hand_out(const Listener& listener, int fd, int count, std::chrono::milliseconds timeout);
/// Connects to `name` and receives a descriptor.
Fd receive_from(const std::string& name, std::chrono::milliseconds timeout);

}  // namespace aliquot::shm
