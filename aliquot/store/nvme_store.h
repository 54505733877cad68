// Space on local disks for what has no room in memory. Torch-free.
//
// [Note: NVMe files]
// One file a path, without a name: O_TMPFILE, or unlinked as soon as it is open. So nothing has to be tidied
// up, however the process ends, several runs share a path, and no run can touch another's data. Space is
// taken when it is asked for (fallocate), so a full disk is an error there and not in the middle of a step.
// Transfers pass by the page cache (O_DIRECT) where the file system allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aliquot/store/io_engine.h"

namespace aliquot {

/// What O_DIRECT wants addresses, offsets and sizes to be a multiple of.
inline constexpr int64_t kDirectAlignment = 4096;

struct NvmeOptions {
  std::vector<std::string> paths;  ///< folders; created if they are not there
  int64_t block_size = 1 << 20;    ///< bytes of one request, and of one stripe of several paths
  int64_t queue_depth = 8;
  int64_t threads = 1;    ///< of the thread engine
  bool use_uring = true;  ///< false: threads, as where io_uring is refused
};

/// A piece of the store's space; starts on kDirectAlignment.
struct Extent {
  int64_t begin = 0, bytes = 0;
};

/// Handle of a transfer under way. Empty ones have nothing to wait for.
class IoTicket {
 public:
  IoTicket() = default;
  explicit IoTicket(std::shared_ptr<IoJob> job) : job_(std::move(job)) {}
  /// Throws IoError naming path, operation, size, offset and cause. The memory is free again in any case.
  void wait() {
    if (auto job = std::exchange(job_, nullptr)) job->wait();
  }

 private:
  std::shared_ptr<IoJob> job_;
};

/// Thread-safe, except that transfers of the same bytes at the same time have no order.
class NvmeStore {
 public:
  /// Throws IoError: a path that is a file, cannot be created or written.
  explicit NvmeStore(const NvmeOptions& options);
  ~NvmeStore();

  /// Space that reads as zeros. Throws IoError with the bytes wanted and free.
  Extent allocate(int64_t bytes);

  /// Bytes of `extent` from `offset` on. Aligned to kDirectAlignment: offset, size and memory, which stays
  /// untouched until the ticket was waited for. The size may pass the extent's end up to its alignment.
  IoTicket start_read(const Extent& extent, int64_t offset, std::span<std::byte> out);
  IoTicket start_write(const Extent& extent, int64_t offset, std::span<const std::byte> bytes);

  /// The same at once, for any offset, size and memory.
  void read(const Extent& extent, int64_t offset, std::span<std::byte> out);
  void write(const Extent& extent, int64_t offset, std::span<const std::byte> bytes);

  int64_t allocated() const { return allocated_; }
  std::string_view engine() const { return engine_->name(); }
  /// "/nvme: 2.0 GiB (io_uring, O_DIRECT)"
  std::string describe() const;

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t size = 0;
    bool direct = false;
  };
  static File open_file(const std::string& path);
  void grow(File& file, int64_t size);
  IoTicket start(bool write, int64_t begin, std::byte* data, int64_t bytes);
  IoTicket start_checked(bool write, const Extent& extent, int64_t offset, std::byte* data, int64_t bytes);

  NvmeOptions options_;
  std::vector<File> files_;
  int64_t allocated_ = 0;
  std::unique_ptr<IoEngine> engine_;  // last: it ends before the files close
};

}  // namespace aliquot
