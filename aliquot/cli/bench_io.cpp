#include "aliquot/cli/bench_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "aliquot/cli/commands.h"
#include "aliquot/cli/exit_codes.h"
#include "aliquot/cli/option_group.h"
#include "aliquot/cli/rank_process.h"
#include "aliquot/error.h"
#include "aliquot/memory/buffer.h"
#include "aliquot/store/nvme_store.h"

namespace aliquot {
namespace {

constexpr int64_t kCopied = int64_t{256} << 20;  // far more than the caches hold
constexpr int64_t kWindows = 4;                  // of the store's memory, in flight in turn

/// A preallocated file that nobody can find, for transfers without the store.
struct RawFile {
  std::string path;
  Fd fd;
};

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

RawFile open_raw(const std::string& folder, int64_t bytes) {
  std::string name = folder + "/.aliquot-bench-XXXXXX";
  RawFile file{folder, Fd(mkostemp(name.data(), O_CLOEXEC))};
  if (!file.fd) fail(folder, "cannot create a file", errno);
  unlink(name.c_str());
  // Where the file system refuses it the page cache is measured, as for the store, which says so.
  fcntl(file.fd.get(), F_SETFL, O_DIRECT);
  if (const int error = posix_fallocate(file.fd.get(), 0, bytes); error != 0)
    fail(folder, fmt::format("cannot take {} bytes for the raw file", bytes), error);
  return file;
}

/// All of one block, or the reason why not.
std::string move_block(bool write, const RawFile& file, std::byte* data, int64_t bytes, int64_t offset) {
  for (int64_t done = 0; done < bytes;) {
    const auto left = static_cast<size_t>(bytes - done);
    const ssize_t n = write ? pwrite(file.fd.get(), data + done, left, offset + done)
                            : pread(file.fd.get(), data + done, left, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return fmt::format("{}: {} of {} bytes at offset {} failed: {}", file.path, write ? "write" : "read",
                         bytes, offset, n < 0 ? std::strerror(errno) : "end of file");
    done += n;
  }
  return "";
}

class IoBench {
 public:
  explicit IoBench(const IoBenchOptions& options)
      : options_(options),
        window_(std::min(options.block_size * options.queue_depth, options.bytes)),
        memory_(nullptr, Kind::staging, window_ * kWindows),
        store_(
            {.paths = options.paths, .block_size = options.block_size, .queue_depth = options.queue_depth}) {
    extent_ = store_.allocate(options.bytes);
    const auto paths = static_cast<int64_t>(options.paths.size());
    const int64_t blocks = (blocks_total() + paths - 1) / paths;
    for (const std::string& path : options.paths) raw_.push_back(open_raw(path, blocks * options.block_size));
    // Neither zeros nor a repeated page, which a disk may shorten.
    uint64_t word = 1;
    for (int64_t i = 0; i < memory_.bytes() / 8; ++i)
      memory_.as<uint64_t>()[i] = word = word * 6364136223846793005ULL + 1442695040888963407ULL;
  }

  std::string engine() const { return std::string(store_.engine()); }

  void through_store(bool write) {
    IoTicket tickets[kWindows];
    for (int64_t at = 0, w = 0; at < options_.bytes; at += window_, w = (w + 1) % kWindows) {
      tickets[w].wait();
      const std::span<std::byte> bytes(memory_.data() + w * window_,
                                       static_cast<size_t>(std::min(window_, options_.bytes - at)));
      tickets[w] = write ? store_.start_write(extent_, at, bytes) : store_.start_read(extent_, at, bytes);
    }
    for (IoTicket& ticket : tickets) ticket.wait();
  }

  void raw(bool write) {
    std::atomic<int64_t> next = 0;
    std::mutex mutex;
    std::string problem;
    const auto move_blocks = [&](int64_t thread) {
      // All of the memory in turn, as the store's windows: what fits a cache would look faster.
      std::byte* const data = memory_.data() + thread * options_.block_size;
      int64_t window = 0;
      const auto paths = static_cast<int64_t>(raw_.size());
      for (int64_t b; (b = next++) < blocks_total();) {
        const RawFile& file = raw_[static_cast<size_t>(b % paths)];
        const std::string failed = move_block(write, file, data + window * window_, options_.block_size,
                                              b / paths * options_.block_size);
        window = (window + 1) % kWindows;
        if (failed.empty()) continue;
        const std::lock_guard lock(mutex);
        problem = failed;
        return;
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int64_t t = 0; t < std::min(options_.queue_depth, blocks_total()); ++t)
        threads.emplace_back(move_blocks, t);
    }
    if (!problem.empty()) throw IoError(problem);
  }

 private:
  int64_t blocks_total() const { return options_.bytes / options_.block_size; }

  IoBenchOptions options_;
  int64_t window_;
  Buffer memory_;
  NvmeStore store_;  // ends its transfers before the memory goes
  Extent extent_;
  std::vector<RawFile> raw_;
};

/// GB/s of `work` on `bytes`.
double rate(int64_t bytes, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return static_cast<double>(bytes) / 1e9 /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

IoBenchRow row(std::string operation, std::string way, std::string engine, std::vector<double> rates) {
  std::ranges::sort(rates);
  return {std::move(operation),          std::move(way), std::move(engine),
          rates[(rates.size() - 1) / 2], rates.front(),  rates.back()};
}

void copy_on_all_cores(const Buffer& from, const Buffer& to) {
  const int64_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> copying;
  for (int64_t t = 0; t < threads; ++t) {
    const int64_t begin = kCopied * t / threads, end = kCopied * (t + 1) / threads;
    copying.emplace_back([&, begin, end] {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  }
}

IoBenchRow bench_memory(int64_t rounds) {
  const Buffer from(nullptr, Kind::staging, kCopied), to(nullptr, Kind::staging, kCopied);
  std::memset(from.data(), 1, kCopied);
  copy_on_all_cores(from, to);
  std::vector<double> rates;
  for (int64_t i = 0; i < rounds; ++i)
    rates.push_back(rate(2 * kCopied, [&] { copy_on_all_cores(from, to); }));
  return row("copy", "memory", "memcpy", rates);
}

void check_options(const IoBenchOptions& o) {
  if (o.block_size % kDirectAlignment != 0)
    throw ConfigError(
        fmt::format("--block-size {}: expected a multiple of {}", o.block_size, kDirectAlignment));
  if (o.bytes % o.block_size != 0)
    throw ConfigError(
        fmt::format("--bytes {}: expected a multiple of --block-size {}", o.bytes, o.block_size));
}

void print_row(const IoBenchOptions& o, const IoBenchRow& r) {
  if (!o.json) {
    fmt::print("{:<6} {:<7} {:<9} {:>7.2f} GB/s  ({:.2f} to {:.2f})\n", r.operation, r.way, r.engine,
               r.median, r.least, r.most);
    return;
  }
  fmt::print(
      R"({{"operation":"{}","way":"{}","engine":"{}","paths":{},"bytes":{},"block_size":{},"queue_depth":{},)"
      R"("rounds":{},"gb_per_s":{:.4f},"least":{:.4f},"most":{:.4f}}})"
      "\n",
      r.operation, r.way, r.engine, o.paths.size(), r.way == "memory" ? 2 * kCopied : o.bytes, o.block_size,
      o.queue_depth, o.rounds, r.median, r.least, r.most);
}

}  // namespace

std::vector<IoBenchRow> bench_io(const IoBenchOptions& options) {
  check_options(options);
  std::vector<double> rates[4];
  std::string engine;
  {
    IoBench bench(options);
    engine = bench.engine();
    // The first write of preallocated space changes the file system's records too.
    bench.through_store(true);
    bench.raw(true);
    for (int64_t round = 0; round < options.rounds; ++round) {
      // Each goes first in turn.
      for (int i = 0; i < 2; ++i) {
        for (const bool write : {true, false}) {
          const bool store = (round + i) % 2 == 0;
          rates[2 * (write ? 0 : 1) + (store ? 0 : 1)].push_back(
              rate(options.bytes, [&] { store ? bench.through_store(write) : bench.raw(write); }));
        }
      }
    }
  }
  return {row("write", "store", engine, rates[0]), row("write", "raw", "threads", rates[1]),
          row("read", "store", engine, rates[2]), row("read", "raw", "threads", rates[3]),
          bench_memory(options.rounds)};
}

void add_bench_io(CLI::App& bench, Invocation& invocation) {
  CLI::App* command = bench.add_subcommand(
      "io", "Throughput of the NVMe store, of raw transfers on the same disk, and of memory");
  const auto options = std::make_shared<IoBenchOptions>();
  OptionGroup group(*command, "Options");
  command->add_option("--path", options->paths, "Folder on the disk; several are striped (the current one)")
      ->type_name("DIR")
      ->group("Options");
  group.whole("--bytes", options->bytes, kDirectAlignment, "Bytes of a file; two are made (1 GiB)");
  group.whole("--block-size", options->block_size, kDirectAlignment, "Bytes of one request (1 MiB)");
  group.number("--queue-depth", options->queue_depth, int64_t{1}, int64_t{256}, "Requests in flight (8)");
  group.whole("--rounds", options->rounds, 1, "Times that each is measured; the median is shown (5)");
  group.flag("--json", options->json, "One JSON object a line");
  command->callback([options, &invocation] {
    invocation.run = [options] {
      for (const IoBenchRow& r : bench_io(*options)) print_row(*options, r);
      return kSuccess;
    };
  });
}

}  // namespace aliquot
