// Anonymous memory that several processes map: memfds, which have no name in a file system, so that nothing
// is left behind however the ranks end. Torch-free.
#pragma once

#include <cstddef>
#include <memory>

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

/// A memfd of `bytes` zero bytes that can neither shrink nor grow. Its pages are not there yet: see
/// reserve(). Throws CommError, also where the machine has not as much memory.
Fd create_memory(size_t bytes);

/// Takes the pages of [begin, end), so that a lack of memory is a CommError here and not a SIGBUS at the
/// first touch.
void reserve(const Fd& memory, size_t begin, size_t end);

/// Maps a memfd twice: read-only for everybody, writable for the parts one owns.
std::shared_ptr<SharedSegment> map_segment(const Fd& memory, size_t bytes);

}  // namespace aliquot::shm
