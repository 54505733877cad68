#include "aliquot/cli/master_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "aliquot/error.h"

namespace aliquot {

MasterPort::MasterPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int yes = 1;
  if (!socket_ || setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(socket_.get(), generic, size) != 0 || getsockname(socket_.get(), generic, &size) != 0) {
    throw Error(fmt::format("no free port on 127.0.0.1 for the ranks to meet at: {}", std::strerror(errno)));
  }
  number_ = ntohs(address.sin_port);
}

}  // namespace aliquot
