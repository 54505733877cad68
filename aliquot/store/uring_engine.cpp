// io_uring: one thread that submits and reaps.
#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <stop_token>
#include <thread>

#include "aliquot/error.h"
#include "aliquot/store/io_engine.h"

namespace aliquot {
namespace {

constexpr int64_t kDeepest = 4096;

class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(int64_t depth) : depth_(std::clamp<int64_t>(depth, 1, kDeepest)) {}
  ~UringEngine() override {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    io_uring_queue_exit(&ring_);
  }

  /// 0, or the error.
  int start() {
    const int result = io_uring_queue_init(static_cast<unsigned>(depth_), &ring_, 0);
    if (result < 0) return -result;
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
    return 0;
  }

  void submit(std::vector<IoRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      for (IoRequest& r : requests) arrived_.push_back(std::move(r));
    }
    changed_.notify_all();
  }
  std::string_view name() const override { return "io_uring"; }

 private:
  /// A request and how far it has come.
  struct Operation {
    IoRequest request;
    int64_t done = 0;
  };

  // What has been asked for when the engine ends still runs: its memory is waited for.
  void loop(const std::stop_token& stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (in_flight_ == 0 && waiting_.empty()) changed_.wait(lock, stop, [&] { return !arrived_.empty(); });
        for (IoRequest& r : arrived_)
          waiting_.push_back(std::make_unique<Operation>(Operation{std::move(r)}));
        arrived_.clear();
      }
      if (in_flight_ == 0 && waiting_.empty()) return;
      fill_ring();
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) fail_all(-result);
      reap();
    }
  }

  void fill_ring() {
    while (in_flight_ < depth_ && !waiting_.empty()) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) return;
      Operation* operation = waiting_.front().release();
      waiting_.pop_front();
      const IoRequest& r = operation->request;
      const auto bytes = static_cast<unsigned>(r.bytes - operation->done);
      const auto offset = static_cast<uint64_t>(r.offset + operation->done);
      if (r.write) {
        io_uring_prep_write(entry, r.fd, r.data + operation->done, bytes, offset);
      } else {
        io_uring_prep_read(entry, r.fd, r.data + operation->done, bytes, offset);
      }
      io_uring_sqe_set_data(entry, operation);
      ++in_flight_;
    }
  }

  void reap() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
      std::unique_ptr<Operation> operation(static_cast<Operation*>(io_uring_cqe_get_data(entry)));
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      --in_flight_;
      finish(std::move(operation), result);
    }
  }

  void finish(std::unique_ptr<Operation> operation, int result) {
    const IoRequest& r = operation->request;
    if (result > 0) operation->done += result;
    const bool interrupted = result == -EINTR || result == -EAGAIN;
    if (interrupted || (result > 0 && operation->done < r.bytes)) {
      waiting_.push_front(std::move(operation));
    } else if (result < 0) {
      r.job->finish(describe(r, -result));
    } else {
      r.job->finish(result == 0 ? describe_end(r) : "");
    }
  }

  // The ring itself is broken: what waits will never run.
  void fail_all(int error) {
    while (!waiting_.empty()) {
      const IoRequest& r = waiting_.front()->request;
      r.job->finish(describe(r, error));
      waiting_.pop_front();
    }
  }

  int64_t depth_;
  io_uring ring_{};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<IoRequest> arrived_;

  // Of the thread.
  std::deque<std::unique_ptr<Operation>> waiting_;
  int64_t in_flight_ = 0;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(int64_t depth, std::string& why_not) {
  auto engine = std::make_unique<UringEngine>(depth);
  if (const int error = engine->start(); error != 0) {
    why_not = fmt::format("io_uring: {}", std::strerror(error));
    return nullptr;
  }
  return engine;
}

}  // namespace aliquot
