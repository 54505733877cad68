// Every collective with random sizes, checked byte by byte: for ranks that are threads or processes, on any
// transport.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "aliquot/comm/comm.h"

namespace aliquot::test {

inline void expect(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

/// The byte at `i` of what `rank` sends to `to` in `round`.
inline std::byte byte_of(int round, int rank, int to, size_t i) {
  const auto salt = static_cast<size_t>(round * 977 + rank * 131 + to * 17);
  return static_cast<std::byte>((i + salt) * 2654435761U >> 13);
}

inline std::vector<std::byte> bytes_of(int round, int rank, int to, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = byte_of(round, rank, to, i);
  return out;
}

inline void check_bytes(const std::byte* got, int round, int rank, int to, size_t bytes, const char* op) {
  for (size_t i = 0; i < bytes; ++i) {
    if (got[i] == byte_of(round, rank, to, i)) continue;
    throw std::runtime_error(
        fmt::format("{} round {}: byte {} of {} from rank {}", op, round, i, bytes, rank));
  }
}

/// 0, tiny, around a page, around multiples of the staging size, or anything up to `most`.
inline size_t random_size(std::mt19937& random, size_t most) {
  const size_t staging = size_t{256} << 10;
  const size_t edges[] = {0,    1,    7,           63,      64,          65,          4095,
                          4096, 4097, staging - 1, staging, staging + 1, 2 * staging, 2 * staging + 3};
  const size_t size = random() % 3 == 0 ? random() % (most + 1) : edges[random() % std::size(edges)];
  return size <= most ? size : size % (most + 1);
}

inline void gather_round(const Comm& comm, int round, size_t bytes, bool in_place) {
  const auto world = static_cast<size_t>(comm.size());
  std::vector<std::byte> in = bytes_of(round, comm.rank(), 0, bytes), out(world * bytes);
  std::byte* own = out.data() + static_cast<size_t>(comm.rank()) * bytes;
  if (in_place) std::copy(in.begin(), in.end(), own);
  comm.all_gather(in_place ? own : in.data(), out.data(), bytes, "gather");
  for (int r = 0; r < comm.size(); ++r)
    check_bytes(out.data() + static_cast<size_t>(r) * bytes, round, r, 0, bytes, "all_gather");
}

inline void broadcast_round(const Comm& comm, int round, size_t bytes, int root) {
  std::vector<std::byte> data = bytes_of(round, comm.rank(), 0, bytes);
  comm.broadcast(data.data(), bytes, root, "broadcast");
  check_bytes(data.data(), round, root, 0, bytes, "broadcast");
}

/// `sizes[from][to]`, the same on every rank.
inline void exchange_round(const Comm& comm, int round, const std::vector<std::vector<size_t>>& sizes) {
  const auto me = static_cast<size_t>(comm.rank());
  std::vector<size_t> recv;
  std::vector<std::byte> in;
  size_t total = 0;
  for (int r = 0; r < comm.size(); ++r) {
    recv.push_back(sizes[static_cast<size_t>(r)][me]);
    total += recv.back();
    const std::vector<std::byte> part = bytes_of(round, comm.rank(), r, sizes[me][static_cast<size_t>(r)]);
    in.insert(in.end(), part.begin(), part.end());
  }
  std::vector<std::byte> out(total);
  comm.all_to_all(in.data(), sizes[me], out.data(), recv, "exchange");
  const std::byte* from = out.data();
  for (int r = 0; r < comm.size(); ++r) {
    check_bytes(from, round, r, comm.rank(), recv[static_cast<size_t>(r)], "all_to_all");
    from += recv[static_cast<size_t>(r)];
  }
}

/// `rounds` random collectives; all ranks draw the same from `seed`. Throws what differs.
inline void run_collectives(const Comm& comm, unsigned seed, int rounds, size_t most) {
  std::mt19937 random(seed);
  const auto world = static_cast<unsigned>(comm.size());
  for (int round = 0; round < rounds; ++round) {
    // Mostly small, so that many rounds take little time.
    const size_t limit = random() % 16 == 0 ? most : 5000;
    switch (random() % 4) {
      case 0:
        comm.barrier("barrier");
        break;
      case 1:
        gather_round(comm, round, random_size(random, limit), random() % 2 == 0);
        break;
      case 2: {
        const size_t bytes = random_size(random, limit);
        broadcast_round(comm, round, bytes, static_cast<int>(random() % world));
        break;
      }
      default: {
        std::vector<std::vector<size_t>> sizes(world, std::vector<size_t>(world));
        for (auto& row : sizes) {
          for (size_t& size : row) size = random_size(random, limit);
        }
        exchange_round(comm, round, sizes);
      }
    }
  }
}

}  // namespace aliquot::test
