#include "aliquot/store/nvme_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/memory/buffer.h"

namespace aliquot {
namespace {

constexpr int64_t kBounce = int64_t{4} << 20;  // bytes moved at a time where memory is not aligned

int64_t round_down(int64_t n, int64_t multiple) {
  return n / multiple * multiple;
}
bool aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kDirectAlignment == 0;
}

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!std::filesystem::is_directory(path)) {
    if (std::filesystem::exists(path)) fail(path, "nvme_path must be a folder", ENOTDIR);
    fail(path, "cannot create nvme_path", error.value());
  }
}

// A file of this folder that no name leads to; -1 with errno.
int open_nameless(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  const std::string name =
      fmt::format("{}/.aliquot-{}-{:x}", path, getpid(), reinterpret_cast<uintptr_t>(&path));
  const int named = open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (named >= 0) unlink(name.c_str());
  return named;
}

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kDirectAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

AlignedBytes bounce_buffer(int64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(
      ::operator new (static_cast<size_t>(bytes), std::align_val_t{kDirectAlignment})));
}

}  // namespace

NvmeStore::File NvmeStore::open_file(const std::string& path) {
  make_folder(path);
  File file{.path = path};
  file.fd = open_nameless(path, O_DIRECT);
  file.direct = file.fd >= 0;
  if (file.fd < 0 && errno == EINVAL) file.fd = open_nameless(path, 0);
  if (file.fd < 0) fail(path, "cannot create a file in nvme_path", errno);
  if (!file.direct)
    log::info("{}: its file system has no O_DIRECT; transfers go through the page cache", path);
  return file;
}

NvmeStore::NvmeStore(const NvmeOptions& options) : options_(options) {
  if (options_.paths.empty()) throw ConfigError("nvme_path names no folder");
  options_.block_size = std::max(round_down(options_.block_size, kDirectAlignment), kDirectAlignment);
  try {
    for (const std::string& path : options_.paths) files_.push_back(open_file(path));
  } catch (...) {
    for (const File& file : files_) close(file.fd);
    throw;
  }
  std::string why_not = "not asked for";
  if (options_.use_uring) engine_ = make_uring_engine(options_.queue_depth, why_not);
  if (engine_) return;
  if (options_.use_uring) log::info("NVMe: {} threads read and write: {}", options_.threads, why_not);
  engine_ = make_thread_engine(options_.threads);
}

NvmeStore::~NvmeStore() {
  engine_.reset();
  for (const File& file : files_) close(file.fd);
}

std::string NvmeStore::describe() const {
  const bool direct = std::ranges::all_of(files_, &File::direct);
  return fmt::format("{}: {:.1f} GiB ({}{})", fmt::join(options_.paths, ", "),
                     static_cast<double>(allocated_) / (1 << 30), engine(), direct ? ", O_DIRECT" : "");
}

void NvmeStore::grow(File& file, int64_t size) {
  if (size <= file.size) return;
  int error = 0;
  do {
    error = posix_fallocate(file.fd, file.size, size - file.size);
  } while (error == EINTR);
  if (error == ENOSPC || error == EFBIG) {
    struct statvfs disk {};
    fstatvfs(file.fd, &disk);
    throw IoError(fmt::format("{}: {} more bytes are wanted for what is offloaded and {} bytes are free",
                              file.path, size - file.size,
                              static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize));
  }
  if (error != 0) fail(file.path, fmt::format("cannot take {} bytes", size - file.size), error);
  file.size = size;
}

Extent NvmeStore::allocate(int64_t bytes) {
  const Extent extent{allocated_, bytes};
  const int64_t end = allocated_ + round_up(bytes, kDirectAlignment);
  const auto paths = static_cast<int64_t>(files_.size());
  // Whole stripes everywhere: the last one may be on any of the paths.
  const int64_t each = paths == 1 ? end : round_up(end, options_.block_size * paths) / paths;
  for (File& file : files_) grow(file, each);
  allocated_ = end;
  return extent;
}

// Block b of the store's space is block b / P of path b mod P.
IoTicket NvmeStore::start(bool write, int64_t begin, std::byte* data, int64_t bytes) {
  if (bytes == 0) return {};
  const int64_t block = options_.block_size;
  const auto paths = static_cast<int64_t>(files_.size());
  std::vector<IoRequest> requests;
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = begin + done, index = at / block;
    const int64_t n = std::min(bytes - done, block - at % block);
    const File& file = files_[static_cast<size_t>(index % paths)];
    requests.push_back(
        {file.fd, write, data + done, n, index / paths * block + at % block, &file.path, nullptr});
    done += n;
  }
  auto job = std::make_shared<IoJob>(static_cast<int64_t>(requests.size()));
  for (IoRequest& request : requests) request.job = job;
  engine_->submit(std::move(requests));
  return IoTicket(std::move(job));
}

IoTicket NvmeStore::start_checked(bool write, const Extent& extent, int64_t offset, std::byte* data,
                                  int64_t bytes) {
  check(offset % kDirectAlignment == 0 && bytes % kDirectAlignment == 0 && aligned(data),
        "an NVMe transfer is not aligned");
  check(offset >= 0 && offset + bytes <= round_up(extent.bytes, kDirectAlignment),
        "an NVMe transfer passes its extent");
  return start(write, extent.begin + offset, data, bytes);
}

IoTicket NvmeStore::start_read(const Extent& extent, int64_t offset, std::span<std::byte> out) {
  return start_checked(false, extent, offset, out.data(), static_cast<int64_t>(out.size()));
}

IoTicket NvmeStore::start_write(const Extent& extent, int64_t offset, std::span<const std::byte> bytes) {
  return start_checked(true, extent, offset, const_cast<std::byte*>(bytes.data()),
                       static_cast<int64_t>(bytes.size()));
}

void NvmeStore::read(const Extent& extent, int64_t offset, std::span<std::byte> out) {
  const auto bytes = static_cast<int64_t>(out.size());
  check(offset >= 0 && offset + bytes <= extent.bytes, "an NVMe read passes its extent");
  int64_t done = 0;
  if (offset % kDirectAlignment == 0 && aligned(out.data())) {
    done = round_down(bytes, kDirectAlignment);
    start(false, extent.begin + offset, out.data(), done).wait();
  }
  const AlignedBytes bounce = bounce_buffer(kBounce);
  while (done < bytes) {
    const int64_t first = round_down(offset + done, kDirectAlignment), skip = offset + done - first;
    const int64_t n = std::min(bytes - done, kBounce - skip);
    start(false, extent.begin + first, bounce.get(), round_up(skip + n, kDirectAlignment)).wait();
    std::memcpy(out.data() + done, bounce.get() + skip, static_cast<size_t>(n));
    done += n;
  }
}

void NvmeStore::write(const Extent& extent, int64_t offset, std::span<const std::byte> data) {
  const auto bytes = static_cast<int64_t>(data.size());
  check(offset >= 0 && offset + bytes <= extent.bytes, "an NVMe write passes its extent");
  const AlignedBytes bounce = bounce_buffer(kBounce);
  for (int64_t done = 0; done < bytes;) {
    const int64_t first = round_down(offset + done, kDirectAlignment), skip = offset + done - first;
    const int64_t n = std::min(bytes - done, kBounce - skip), whole = round_up(skip + n, kDirectAlignment);
    // What lies around it in its first and last page stays.
    if (skip != 0) start(false, extent.begin + first, bounce.get(), kDirectAlignment).wait();
    if (skip + n != whole) {
      const int64_t last = whole - kDirectAlignment;
      start(false, extent.begin + first + last, bounce.get() + last, kDirectAlignment).wait();
    }
    std::memcpy(bounce.get() + skip, data.data() + done, static_cast<size_t>(n));
    start(true, extent.begin + first, bounce.get(), whole).wait();
    done += n;
  }
}

}  // namespace aliquot
