// The only file that sees Gloo's headers, and no type of theirs but in passing: the headers are older than
// the library inside torch, so nothing of ::gloo may be called or laid out here.
#include "aliquot/comm/gloo.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <sstream>
#include <string>

#include "aliquot/error.h"

namespace aliquot {
namespace {

using Gloo = c10d::ProcessGroupGloo;

void add_devices(Gloo::Options& options, bool one_host) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces != nullptr && *interfaces != '\0') {
    std::istringstream names(interfaces);
    for (std::string name; std::getline(names, name, ',');)
      options.devices.push_back(Gloo::createDeviceForInterface(name));
  } else if (one_host) {
    options.devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options.devices.push_back(Gloo::createDefaultDevice());
  }
}

}  // namespace

bool has_gloo() {
  return true;
}

c10::intrusive_ptr<c10d::Backend> open_gloo(const Store& store, int rank, int world,
                                            std::chrono::milliseconds timeout, bool one_host) {
  try {
    auto options = Gloo::Options::create(timeout);
    add_devices(*options, one_host);
    return c10::make_intrusive<Gloo>(store, rank, world, options);
  } catch (const std::exception& e) {
    throw CommError(fmt::format(
        "rank {}: Gloo cannot connect the ranks (GLOO_SOCKET_IFNAME names the network interface to "
        "use): {}",
        rank, e.what()));
  }
}

}  // namespace aliquot
