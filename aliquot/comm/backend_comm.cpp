#include "aliquot/comm/backend_comm.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "aliquot/comm/exchange_sizes.h"
#include "aliquot/comm/last_words.h"
#include "aliquot/comm/purpose.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

at::Tensor tensor_of(const void* data, size_t bytes) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)},
                       at::TensorOptions().dtype(at::kByte));
}

size_t sum(std::span<const size_t> sizes) {
  size_t total = 0;
  for (const size_t n : sizes) total += n;
  return total;
}

class BackendComm final : public CommImpl {
 public:
  /// `path` tells the channels of one connection apart.
  BackendComm(BackendMember member, const Store& store, std::shared_ptr<LastWords> words, std::string path)
      : member_(std::move(member)),
        store_(store),
        words_(std::move(words)),
        path_(std::move(path)),
        backend_(member_.open(c10::make_intrusive<c10d::PrefixStore>(path_, store_))) {}

  int rank() const override { return member_.rank; }
  int size() const override { return member_.world; }
  std::string_view backend() const override { return member_.name; }

  void barrier(std::string_view what) override { meet({Op::barrier, 0, 0, what}, what); }

  void all_gather(const void* in, void* out, size_t bytes, std::string_view what) override {
    meet({Op::all_gather, 0, bytes, what}, what);
    if (bytes > 0) gather(in, out, bytes, what);
  }

  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what) override {
    meet({Op::all_to_all, 0, 0, what}, what);
    check_sizes(send, recv, what);
    std::vector<int64_t> sent(send.begin(), send.end()), received(recv.begin(), recv.end());
    at::Tensor input = tensor_of(in, sum(send)), output = tensor_of(out, sum(recv));
    run(what, [&] { return backend_->alltoall_base(output, input, received, sent); });
  }

  void broadcast(void* data, size_t bytes, int root, std::string_view what) override {
    meet({Op::broadcast, root, bytes, what}, what);
    if (bytes == 0) return;
    std::vector<at::Tensor> tensors{tensor_of(data, bytes)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    run(what, [&] { return backend_->broadcast(tensors, options); });
  }

  std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what) override {
    meet({Op::share, 0, bytes, what}, what);
    return nullptr;
  }

  std::shared_ptr<CommImpl> channel(std::string_view name) override {
    meet({Op::channel, 0, 0, name}, name);
    return std::make_shared<BackendComm>(member_, store_, words_, fmt::format("{}/{}", path_, ++channels_));
  }

  // Peers that wait for this rank see their connections close, and look for its words.
  void abort(std::string_view message) override {
    words_->leave(message);
    failed_ = message;
    backend_.reset();
  }

 private:
  /// Compares what the ranks are about to do.
  void meet(const Purpose& purpose, std::string_view what) {
    ++meetings_;
    std::vector<Purpose> all(static_cast<size_t>(size()));
    gather(&purpose, all.data(), sizeof(Purpose), what);
    for (int r = 0; r < size(); ++r) {
      checked([&] { check_same(meetings_, rank(), purpose, r, all[static_cast<size_t>(r)]); });
    }
  }

  void gather(const void* in, void* out, size_t bytes, std::string_view what) {
    // c10d forbids an input inside its output.
    at::Tensor input = tensor_of(in, bytes).clone();
    at::Tensor output = tensor_of(out, bytes * static_cast<size_t>(size()));
    run(what, [&] { return backend_->_allgather_base(output, input); });
  }

  void check_sizes(std::span<const size_t> send, std::span<const size_t> recv, std::string_view what) {
    if (send.size() != static_cast<size_t>(size()) || recv.size() != send.size()) {
      throw UsageError(fmt::format("{}: all_to_all with {} and {} sizes between {} ranks", what, send.size(),
                                   recv.size(), size()));
    }
    ExchangeSizes sizes(send.size());
    std::vector<std::byte> own(sizes.row_bytes()), rows(own.size() * send.size());
    ExchangeSizes::write_row(own.data(), send, recv);
    gather(own.data(), rows.data(), own.size(), what);
    for (size_t r = 0; r < send.size(); ++r) sizes.read_row(r, rows.data() + r * own.size());
    checked([&] { sizes.check(what); });
  }

  template <typename Body>
  void checked(const Body& body) {
    try {
      body();
    } catch (const CommError& e) {
      fail(e.what());
      throw;
    }
  }

  template <typename Start>
  void run(std::string_view what, const Start& start) {
    if (!backend_) throw CommError(fmt::format("the ranks have lost each other before: {}", failed_));
    std::string error;
    try {
      start()->wait();
      return;
    } catch (const std::exception& e) {
      error = e.what();
    }
    // The others' connections to this rank close, so that they come to know of it too.
    fail(fmt::format("{}: {}", what, error));
    failed_ = words_->explain(what, fmt::format("{}/{}", path_, meetings_), error);
    throw CommError(failed_);
  }

  void fail(std::string why) {
    failed_ = std::move(why);
    backend_.reset();
  }

  BackendMember member_;
  Store store_;
  std::shared_ptr<LastWords> words_;
  std::string path_;
  c10::intrusive_ptr<c10d::Backend> backend_;  // null once failed; goes before the store
  std::string failed_;
  uint64_t meetings_ = 0;
  int channels_ = 0;
};

}  // namespace

std::shared_ptr<CommImpl> make_backend_comm(BackendMember member, const Store& store) {
  auto words = std::make_shared<LastWords>(store, member.rank, member.world, member.peers);
  return std::make_shared<BackendComm>(std::move(member), store, std::move(words), "backend");
}

}  // namespace aliquot
