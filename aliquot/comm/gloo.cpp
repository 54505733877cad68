// The only file that sees Gloo's headers, and no type of theirs but in passing: the headers are older than
// the library inside torch, so nothing of ::gloo may be called or laid out here.
#include "aliquot/comm/gloo.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <utility>
#include <vector>

#include "aliquot/error.h"

namespace aliquot {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

at::Tensor tensor_of(const void* data, size_t bytes) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)},
                       at::TensorOptions().dtype(at::kByte));
}

class GlooComm final : public CommImpl {
 public:
  GlooComm(Store store, int rank, int size, const CommOptions& options)
      : store_(std::move(store)), rank_(rank), size_(size), options_(options) {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    backend_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, rank, size, gloo);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "gloo"; }

  void barrier(std::string_view what) override {
    run(what, [&] { return backend_->barrier(); });
  }
  void all_gather(const void* in, void* out, size_t bytes, std::string_view what) override {
    if (bytes == 0) return barrier(what);
    // c10d forbids an input inside its output.
    at::Tensor input = tensor_of(in, bytes).clone();
    at::Tensor output = tensor_of(out, bytes * static_cast<size_t>(size_));
    run(what, [&] { return backend_->_allgather_base(output, input); });
  }
  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what) override {
    std::vector<int64_t> sent(send.begin(), send.end()), received(recv.begin(), recv.end());
    at::Tensor input = tensor_of(in, sum(send)), output = tensor_of(out, sum(recv));
    run(what, [&] { return backend_->alltoall_base(output, input, received, sent); });
  }
  void broadcast(void* data, size_t bytes, int root, std::string_view what) override {
    if (bytes == 0) return;
    std::vector<at::Tensor> tensors{tensor_of(data, bytes)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    run(what, [&] { return backend_->broadcast(tensors, options); });
  }
  std::shared_ptr<SharedSegment> share(size_t, std::string_view) override { return nullptr; }
  std::shared_ptr<CommImpl> channel(std::string_view name) override {
    return std::make_shared<GlooComm>(c10::make_intrusive<c10d::PrefixStore>(std::string(name), store_),
                                      rank_, size_, options_);
  }
  void abort(std::string_view message) override {
    // Peers learn of it from the connections that close; the words travel through the store where it still
    // lives.
    try {
      store_->set("abort", std::vector<uint8_t>(message.begin(), message.end()));
    } catch (const std::exception&) {  // the peer that held the store has ended: nobody is left to read it
      return;
    }
  }

 private:
  static size_t sum(std::span<const size_t> sizes) {
    size_t total = 0;
    for (const size_t n : sizes) total += n;
    return total;
  }

  template <typename Start>
  void run(std::string_view what, const Start& start) {
    try {
      start()->wait();
    } catch (const std::exception& e) {
      throw CommError(fmt::format("{}: rank {} lost a peer, or one did not come within {} s: {}", what, rank_,
                                  std::chrono::duration<double>(options_.timeout).count(), e.what()));
    }
  }

  Store store_;
  int rank_, size_;
  CommOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_;  // last: it goes before the store
};

}  // namespace

bool has_gloo() {
  return true;
}

std::shared_ptr<CommImpl> connect_gloo(const Store& store, const Rendezvous& r, const CommOptions& options) {
  return std::make_shared<GlooComm>(store, r.rank, r.world, options);
}

}  // namespace aliquot
