// What a Comm does behind its handle: one class per transport. Private to this folder.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "aliquot/comm/comm.h"

namespace aliquot {

class CommImpl {
 public:
  virtual ~CommImpl() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;
  virtual void barrier(std::string_view what) = 0;
  virtual void all_gather(const void* in, void* out, size_t bytes, std::string_view what) = 0;
  virtual void all_to_all(const void* in, std::span<const size_t> send, void* out,
                          std::span<const size_t> recv, std::string_view what) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, std::string_view what) = 0;
  virtual std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what) = 0;
  virtual std::shared_ptr<CommImpl> channel(std::string_view name) = 0;
  virtual void abort(std::string_view message) = 0;

  void count(std::string_view op, size_t bytes);
  Traffic traffic(bool reset);

  static Comm handle(std::shared_ptr<CommImpl> impl) { return Comm(std::move(impl)); }

 private:
  std::mutex mutex_;
  Traffic traffic_;
};

namespace shm {
class Group;
}
std::shared_ptr<CommImpl> make_shm_comm(std::unique_ptr<shm::Group> group);

}  // namespace aliquot
