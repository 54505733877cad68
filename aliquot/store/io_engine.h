// Reads and writes of files that run while the caller computes. Torch-free.
//
// One thread keeps `depth` operations in flight through io_uring (uring_engine.cpp); where the kernel or a
// sandbox refuses that, or liburing was not there at build time, a few threads call pread and pwrite
// (thread_engine.cpp). Both go on after short transfers and interruptions.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot {

/// What one call of the store waits for: several requests.
class IoJob {
 public:
  explicit IoJob(int64_t requests) : left_(requests) {}

  /// One request has ended; `problem` is empty if it went well. The first problem is kept.
  void finish(std::string problem);
  bool done() const;
  /// Returns when every request has ended. Throws IoError with the first problem.
  void wait();

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int64_t left_;
  std::string problem_;
};

struct IoRequest {
  int fd = -1;
  bool write = false;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;                 ///< in the file
  const std::string* path = nullptr;  ///< for messages; outlives the request
  std::shared_ptr<IoJob> job;
};

/// "/nvme/x: write of 1048576 bytes at offset 0 failed: No space left on device (0 bytes are free)".
std::string describe(const IoRequest& request, int error);
/// A read that met the end of the file.
std::string describe_end(const IoRequest& request);

class IoEngine {
 public:
  /// Ends what is in flight.
  virtual ~IoEngine() = default;
  /// Returns at once; thread-safe.
  virtual void submit(std::vector<IoRequest> requests) = 0;
  virtual std::string_view name() const = 0;
};

/// Null, with the reason in `why_not`, where io_uring cannot be used.
std::unique_ptr<IoEngine> make_uring_engine(int64_t depth, std::string& why_not);
std::unique_ptr<IoEngine> make_thread_engine(int64_t threads);

}  // namespace aliquot
