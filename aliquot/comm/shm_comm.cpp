#include <utility>

#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/shm_group.h"

namespace aliquot {
namespace {

class ShmComm final : public CommImpl {
 public:
  explicit ShmComm(std::unique_ptr<shm::Group> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view backend() const override { return "shm"; }
  void barrier(std::string_view what) override { group_->barrier(what); }
  void all_gather(const void* in, void* out, size_t bytes, std::string_view what) override {
    group_->all_gather(in, out, bytes, what);
  }
  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what) override {
    group_->all_to_all(in, send, out, recv, what);
  }
  void broadcast(void* data, size_t bytes, int root, std::string_view what) override {
    group_->broadcast(data, bytes, root, what);
  }
  std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what) override {
    return group_->share(bytes, what);
  }
  std::shared_ptr<CommImpl> channel(std::string_view name) override {
    return std::make_shared<ShmComm>(group_->channel(name));
  }
  void abort(std::string_view message) override { group_->abort(message); }

 private:
  std::unique_ptr<shm::Group> group_;
};

}  // namespace

std::shared_ptr<CommImpl> make_shm_comm(std::unique_ptr<shm::Group> group) {
  return std::make_shared<ShmComm>(std::move(group));
}

std::vector<Comm> Comm::threads(int world, const CommOptions& options) {
  const size_t bytes = shm::control_bytes(world);
  const shm::Fd memory = shm::create_memory(bytes);
  shm::reserve(memory, 0, bytes);
  const auto peers = std::make_shared<const Peers>();
  std::vector<Comm> comms;
  for (shm::Links& links : shm::Links::among_threads(world)) {
    const shm::Group::Member member{static_cast<int>(comms.size()), world, options.timeout, peers};
    auto control = links.map(memory, bytes);
    comms.push_back(CommImpl::handle(
        make_shm_comm(std::make_unique<shm::Group>(member, std::move(control), std::move(links)))));
  }
  return comms;
}

}  // namespace aliquot
