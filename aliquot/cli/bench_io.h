// aliquot bench io: the NVMe store beside raw transfers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aliquot {

struct Invocation;

struct IoBenchOptions {
  std::vector<std::string> paths{"."};
  int64_t bytes =
      int64_t{1} << 30;  ///< of each of the two files (the store's and the raw one), all paths together
  int64_t block_size = 1 << 20;
  int64_t queue_depth = 8;
  int64_t rounds = 5;
  bool json = false;
};

/// One line of the result: 1e9 bytes a second, of all rounds.
struct IoBenchRow {
  std::string operation;  ///< read, write, copy
  std::string way;        ///< store, raw, memory
  std::string engine;     ///< io_uring, threads, memcpy
  double median = 0, least = 0, most = 0;
};

/// Writes and reads through the store and, in turn with it, by `queue_depth` threads of pread and pwrite;
/// both from the same memory to files that are preallocated and were written once. Then copies memory on all
/// cores (bytes read and written count). The files have no name and are gone at the end. Throws IoError, also
/// where space is short, and ConfigError.
std::vector<IoBenchRow> bench_io(const IoBenchOptions& options);

void add_bench_io(CLI::App& bench, Invocation& invocation);

}  // namespace aliquot
