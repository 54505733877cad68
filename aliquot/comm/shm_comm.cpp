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
  const shm::Fd memory = shm::create_memory(shm::control_bytes(world));
  std::vector<Comm> comms;
  for (int rank = 0; rank < world; ++rank) {
    comms.push_back(CommImpl::handle(make_shm_comm(std::make_unique<shm::Group>(
        rank, world, shm::map_segment(memory, shm::control_bytes(world)), options.timeout))));
  }
  return comms;
}

}  // namespace aliquot
