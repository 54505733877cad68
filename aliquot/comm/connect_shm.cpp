#include "aliquot/comm/connect_shm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>
#include <map>

#include "aliquot/error.h"

namespace aliquot {
namespace {

// All ranks are here already; this is for a handful of local system calls.
constexpr std::chrono::seconds kHandOver(20);

ino_t namespace_of(const char* kind) {
  struct stat info {};
  return stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &info) == 0 ? info.st_ino
                                                                         : static_cast<ino_t>(getpid());
}

// Equal exactly for processes that see each other's pids and abstract sockets, and may pass each other
// descriptors.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return fmt::format("{} {} {} {} {}", name, boot, namespace_of("pid"), namespace_of("net"), geteuid());
}

pid_t number_in(std::string_view text) {
  pid_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Rank 0 listens, hands out the control segment, and keeps the sockets.
shm::Links host_links(const Store& store, int world, const shm::Fd& memory) {
  const auto deadline = std::chrono::steady_clock::now() + kHandOver;
  const shm::Listener listener = shm::listen_for_peers(world);
  store->set("control", to_bytes(listener.name));
  shm::Links links = shm::Links::accept(listener, world, deadline);
  links.give(memory);
  return links;
}

std::unique_ptr<shm::Group> try_join(const Store& store, const shm::Group::Member& member) {
  const size_t bytes = shm::control_bytes(member.world);
  shm::Fd memory;
  shm::Links links;
  if (member.rank == 0) {
    try {
      memory = shm::create_memory(bytes);
      shm::reserve(memory, 0, bytes);
      links = host_links(store, member.world, memory);
    } catch (const Error&) {
      if (!store->check({"control"})) store->set("control", to_bytes(""));
      throw;
    }
  } else {
    const std::string listener = to_text(store->get("control"));
    if (listener.empty()) return nullptr;
    links = shm::Links::join(listener, member.rank);
    memory = links.take_by(std::chrono::steady_clock::now() + kHandOver);
  }
  auto control = links.map(memory, bytes);
  return std::make_unique<shm::Group>(member, std::move(control), std::move(links));
}

}  // namespace

Hosts find_hosts(const Store& store, int rank, int world) {
  const std::string own = host_identity();
  const std::vector<std::string> all =
      collect(store, rank, world, "host", fmt::format("{} {}", own, getpid()));
  std::map<std::string, std::vector<int>> by_host;
  std::vector<pid_t> pids;
  for (int r = 0; r < world; ++r) {
    const std::string& said = all[static_cast<size_t>(r)];
    const size_t end = said.rfind(' ');
    const std::string identity = said.substr(0, end);
    by_host[identity].push_back(r);
    pids.push_back(identity == own ? number_in(std::string_view(said).substr(end + 1)) : 0);
  }
  Hosts hosts{by_host.size() == 1, std::make_shared<const Peers>(std::move(pids)), ""};
  for (const auto& [identity, ranks] : by_host) {
    hosts.table += fmt::format("{}{}: rank {}", hosts.table.empty() ? "" : "; ",
                               identity.substr(0, identity.find(' ')), fmt::join(ranks, ", "));
  }
  return hosts;
}

ShmJoin join_shm(const Store& store, const shm::Group::Member& member) {
  ShmJoin join;
  std::string problem;
  try {
    join.group = try_join(store, member);
  } catch (const Error& e) {
    problem = fmt::format("rank {}: {}", member.rank, e.what());
  }
  for (const std::string& theirs : collect(store, member.rank, member.world, "shm", problem)) {
    if (join.problem.empty()) join.problem = theirs;
  }
  if (!join.problem.empty()) {
    join.group.reset();
    return join;
  }
  // The store may go once everybody has what it came for.
  join.group->barrier("join");
  return join;
}

}  // namespace aliquot
