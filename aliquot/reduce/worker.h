// A thread that runs jobs in order and hands its first failure to whoever waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace aliquot {

class Worker {
 public:
  Worker() : thread_([this](const std::stop_token& stop) { loop(stop); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// Jobs not yet begun are dropped; the one that runs is waited for.
  ~Worker() = default;

  void post(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

  /// Returns when every job has run. Rethrows the first failure since the last `wait`; jobs after it were
  /// dropped.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() && !running_; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      if (!changed_.wait(lock, stop, [&] { return !jobs_.empty(); }) || stop.stop_requested()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      if (failure_) {
        if (jobs_.empty()) changed_.notify_all();
        continue;
      }
      running_ = true;
      lock.unlock();
      std::exception_ptr failure;
      try {
        job();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      running_ = false;
      if (failure) failure_ = failure;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  bool running_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace aliquot
