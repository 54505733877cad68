#include "aliquot/comm/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <utility>

#include "aliquot/error.h"

namespace aliquot::shm {
namespace {

// Told apart from a rank by its sign.
constexpr int kGift = -1;

}  // namespace

/// One mapping a segment, by the segment's inode.
class SharedMappings {
 public:
  std::shared_ptr<SharedSegment> map(const Fd& memory, size_t bytes) {
    struct stat info {};
    check(fstat(memory.get(), &info) == 0, "fstat of a memfd");
    const std::lock_guard lock(mutex_);
    std::weak_ptr<SharedSegment>& known = by_inode_[info.st_ino];
    std::shared_ptr<SharedSegment> segment = known.lock();
    // A mapping that lives keeps its inode's number from being given again.
    if (!segment) known = segment = map_segment(memory, bytes);
    return segment;
  }

 private:
  std::mutex mutex_;
  std::map<ino_t, std::weak_ptr<SharedSegment>> by_inode_;
};

Links Links::accept(const Listener& listener, int world, Deadline deadline) {
  Links links;
  std::vector<Fd> by_rank(static_cast<size_t>(world));
  try {
    for (int come = 1; come < world; ++come) {
      Fd peer = accept_peer(listener, deadline);
      const int rank = receive_message(peer, deadline).number;
      check(rank > 0 && rank < world && !by_rank[static_cast<size_t>(rank)], "a rank joined twice");
      by_rank[static_cast<size_t>(rank)] = std::move(peer);
    }
  } catch (const CommError& e) {
    std::vector<int> missing;
    for (int rank = 1; rank < world; ++rank) {
      if (!by_rank[static_cast<size_t>(rank)]) missing.push_back(rank);
    }
    throw CommError(fmt::format("{} (missing: rank {})", e.what(), fmt::join(missing, ", ")));
  }
  for (size_t rank = 1; rank < by_rank.size(); ++rank) links.sockets_.push_back(std::move(by_rank[rank]));
  return links;
}

Links Links::join(const std::string& listener, int rank) {
  Links links;
  links.sockets_.push_back(connect_to(listener));
  send_message(links.sockets_[0], rank, -1);
  return links;
}

std::vector<Links> Links::among_threads(int world) {
  std::vector<Links> all(static_cast<size_t>(world));
  const auto mappings = std::make_shared<SharedMappings>();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].mappings_ = mappings;
    if (rank == 0) continue;
    auto [here, there] = socket_pair();
    all[0].sockets_.push_back(std::move(here));
    all[rank].sockets_.push_back(std::move(there));
  }
  return all;
}

void Links::give(const Fd& fd) {
  for (const Fd& socket : sockets_) send_message(socket, kGift, fd.get());
}

Fd Links::take() {
  return take_by(std::chrono::steady_clock::now());
}

Fd Links::take_by(Deadline deadline) {
  Message message = receive_message(sockets_[0], deadline);
  check(message.number == kGift && static_cast<bool>(message.fd), "a gift without a descriptor");
  return std::move(message.fd);
}

Links Links::give_links() {
  Links links;
  links.mappings_ = mappings_;
  for (const Fd& socket : sockets_) {
    auto [here, there] = socket_pair();
    send_message(socket, kGift, there.get());
    links.sockets_.push_back(std::move(here));
  }
  return links;
}

Links Links::take_links() {
  Links links;
  links.mappings_ = mappings_;
  links.sockets_.push_back(take());
  return links;
}

std::shared_ptr<SharedSegment> Links::map(const Fd& memory, size_t bytes) const {
  return mappings_ && bytes > 0 ? mappings_->map(memory, bytes) : map_segment(memory, bytes);
}

}  // namespace aliquot::shm
