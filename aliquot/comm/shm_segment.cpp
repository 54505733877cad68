#include "aliquot/comm/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "aliquot/error.h"

namespace aliquot::shm {
namespace {

[[noreturn]] void fail(std::string_view what) {
  throw CommError(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

class MappedSegment final : public SharedSegment {
 public:
  MappedSegment(int fd, size_t bytes) : bytes_(bytes) {
    if (bytes_ == 0) return;
    read_ = map(fd, PROT_READ);
    write_ = map(fd, PROT_READ | PROT_WRITE);
  }
  ~MappedSegment() override {
    if (read_ != nullptr) munmap(read_, bytes_);
    if (write_ != nullptr) munmap(write_, bytes_);
  }
  const std::byte* read() const override { return static_cast<const std::byte*>(read_); }
  std::byte* write() const override { return static_cast<std::byte*>(write_); }
  size_t bytes() const override { return bytes_; }

 private:
  void* map(int fd, int protection) const {
    void* p = mmap(nullptr, bytes_, protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) fail(fmt::format("cannot map {} bytes", bytes_));
    return p;
  }
  size_t bytes_;
  void* read_ = nullptr;
  void* write_ = nullptr;
};

socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // A leading zero byte: the abstract namespace, gone with its last socket.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

void wait_readable(int fd, std::chrono::milliseconds timeout, std::string_view what) {
  pollfd p{fd, POLLIN, 0};
  const int ready = poll(&p, 1, static_cast<int>(timeout.count()));
  if (ready < 0) fail(what);
  if (ready == 0)
    throw CommError(fmt::format("shared memory: {}: nobody came within {} ms", what, timeout.count()));
}

void send_fd(int socket, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) fail("cannot pass a segment to a peer");
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Fd create_memory(size_t bytes) {
  Fd fd(memfd_create("aliquot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail("memfd_create");
  if (bytes > 0) {
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
      fail(fmt::format("cannot size a segment to {} bytes", bytes));
    if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
      errno = error;
      fail(fmt::format("cannot reserve {:.1f} MiB", static_cast<double>(bytes) / (1 << 20)));
    }
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("cannot seal a segment");
  return fd;
}

std::shared_ptr<SharedSegment> map_segment(const Fd& fd, size_t bytes) {
  return std::make_shared<MappedSegment>(fd.get(), bytes);
}

Listener listen_for_peers(int backlog) {
  uint64_t random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) fail("getrandom");
  Listener listener{Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
                    fmt::format("aliquot-{:016x}{:016x}", random[0], random[1])};
  if (!listener.socket) fail("socket");
  sockaddr_un address;
  const socklen_t size = address_of(listener.name, address);
  if (bind(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) fail("bind");
  if (listen(listener.socket.get(), backlog) != 0) fail("listen");
  return listener;
}

void hand_out(const Listener& listener, int fd, int count, std::chrono::milliseconds timeout) {
  for (int given = 0; given < count;) {
    wait_readable(listener.socket.get(), timeout, "waiting for peers to fetch a segment");
    const Fd peer(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) fail("accept");
    if (!same_user(peer.get())) continue;  // somebody else's process guessed the name
    send_fd(peer.get(), fd);
    ++given;
  }
}

Fd receive_from(const std::string& name, std::chrono::milliseconds timeout) {
  const Fd socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_) fail("socket");
  sockaddr_un address;
  const socklen_t size = address_of(name, address);
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    fail("cannot reach the rank that owns a segment");
  wait_readable(socket_.get(), timeout, "waiting for a segment");
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) != 1) fail("cannot receive a segment");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    throw CommError("shared memory: a peer sent no segment");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return Fd(fd);
}

}  // namespace aliquot::shm
