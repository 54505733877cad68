#include "aliquot/comm/comm.h"

#include <cstring>
#include <utility>

#include "aliquot/comm/comm_impl.h"
#include "aliquot/comm/shm_segment.h"

namespace aliquot {

void CommImpl::count(std::string_view op, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto it = traffic_.by_op.find(op);
  if (it == traffic_.by_op.end()) it = traffic_.by_op.emplace(std::string(op), Traffic::Count{}).first;
  ++it->second.calls;
  it->second.bytes += static_cast<int64_t>(bytes);
}

Traffic CommImpl::traffic(bool reset) {
  const std::lock_guard lock(mutex_);
  return reset ? std::exchange(traffic_, {}) : traffic_;
}

Comm::Comm() = default;
Comm::Comm(std::shared_ptr<CommImpl> impl) : impl_(std::move(impl)) {}

int Comm::rank() const {
  return impl_ ? impl_->rank() : 0;
}
int Comm::size() const {
  return impl_ ? impl_->size() : 1;
}
std::string_view Comm::backend() const {
  return impl_ ? impl_->backend() : "none";
}

void Comm::barrier(std::string_view what) const {
  if (impl_) impl_->barrier(what);
}

void Comm::all_gather(const void* in, void* out, size_t bytes, std::string_view what) const {
  if (!impl_) {
    if (in != out && bytes > 0) std::memmove(out, in, bytes);
    return;
  }
  impl_->count("all_gather", bytes * static_cast<size_t>(size() - 1));
  impl_->all_gather(in, out, bytes, what);
}

void Comm::all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                      std::string_view what) const {
  if (!impl_) {
    if (send[0] > 0) std::memmove(out, in, send[0]);
    return;
  }
  size_t bytes = 0;
  for (size_t r = 0; r < send.size(); ++r) bytes += static_cast<int>(r) == rank() ? 0 : send[r];
  impl_->count("all_to_all", bytes);
  impl_->all_to_all(in, send, out, recv, what);
}

void Comm::broadcast(void* data, size_t bytes, int root, std::string_view what) const {
  if (!impl_) return;
  impl_->count("broadcast", rank() == root ? bytes * static_cast<size_t>(size() - 1) : 0);
  impl_->broadcast(data, bytes, root, what);
}

std::shared_ptr<SharedSegment> Comm::share(size_t bytes, std::string_view what) const {
  if (impl_) return impl_->share(bytes, what);
  const shm::Fd memory = shm::create_memory(bytes);
  shm::reserve(memory, 0, bytes);
  return shm::map_segment(memory, bytes);
}

Comm Comm::channel(std::string_view name) const {
  return impl_ ? Comm(impl_->channel(name)) : Comm();
}

void Comm::abort(std::string_view message) const {
  if (impl_) impl_->abort(message);
}

Traffic Comm::traffic(bool reset) const {
  return impl_ ? impl_->traffic(reset) : Traffic{};
}

}  // namespace aliquot
