// pread and pwrite on a few threads.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <stop_token>
#include <thread>

#include "aliquot/store/io_engine.h"

namespace aliquot {
namespace {

std::string run(IoRequest& r) {
  const IoRequest whole = r;
  while (r.bytes > 0) {
    const ssize_t n = r.write ? pwrite(r.fd, r.data, static_cast<size_t>(r.bytes), r.offset)
                              : pread(r.fd, r.data, static_cast<size_t>(r.bytes), r.offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return describe(whole, errno);
    if (n == 0) return describe_end(whole);
    r.data += n;
    r.bytes -= n;
    r.offset += n;
  }
  return "";
}

class ThreadEngine final : public IoEngine {
 public:
  explicit ThreadEngine(int64_t threads) {
    for (int64_t t = 0; t < std::max<int64_t>(threads, 1); ++t) {
      threads_.emplace_back([this](const std::stop_token& stop) { loop(stop); });
    }
  }

  void submit(std::vector<IoRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      for (IoRequest& r : requests) queue_.push_back(std::move(r));
    }
    changed_.notify_all();
  }
  std::string_view name() const override { return "threads"; }

 private:
  // What is queued when the engine ends still runs: its memory is waited for.
  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !queue_.empty(); }) || !queue_.empty()) {
      IoRequest request = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const std::shared_ptr<IoJob> job = request.job;
      job->finish(run(request));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<IoRequest> queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(int64_t threads) {
  return std::make_unique<ThreadEngine>(threads);
}

}  // namespace aliquot
