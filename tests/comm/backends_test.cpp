// c10d backends side by side, ranks as threads: ours and Gloo must move the same bytes.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <functional>
#include <thread>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/comm/gloo.h"
#include "aliquot/comm/shm_backend.h"
#include "aliquot/error.h"
#include "tests/comm/collectives.h"

namespace aliquot {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
constexpr int kWorld = 3;
constexpr std::chrono::seconds kTimeout(30);

Backend open_shm(const Store& store, int rank) {
  return ShmBackend::create(store, rank, kWorld, kTimeout);
}
Backend open_gloo_of_host(const Store& store, int rank) {
  return open_gloo(store, rank, kWorld, kTimeout, true);
}

/// Runs `body` on every rank of a new group; what it returns, by rank.
template <typename Body>
std::vector<std::vector<at::Tensor>> on_ranks(Backend (*open)(const Store&, int), const Body& body) {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::vector<at::Tensor>> results(kWorld);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results[static_cast<size_t>(rank)] = body(open(store, rank));
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

at::Tensor numbers(int rank, at::IntArrayRef shape, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return at::arange(count).add(1000 * rank).reshape(shape).to(type);
}

std::vector<at::Tensor> all_operations(const Backend& backend) {
  const int rank = backend->getRank();
  std::vector<at::Tensor> results;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kByte}) {
    at::Tensor in = numbers(rank, {7, 5}, type), out = at::zeros({7 * kWorld, 5}, type);
    backend->_allgather_base(out, in)->wait();
    results.push_back(out);

    std::vector<at::Tensor> inputs{in};
    std::vector<std::vector<at::Tensor>> lists(1);
    for (int r = 0; r < kWorld; ++r) lists[0].push_back(at::zeros({7, 5}, type));
    backend->allgather(lists, inputs)->wait();
    results.push_back(at::cat(lists[0]));

    std::vector<at::Tensor> shared{numbers(rank, {100'000, 3}, type)};
    c10d::BroadcastOptions from;
    from.rootRank = 2;
    backend->broadcast(shared, from)->wait();
    results.push_back(shared[0]);

    at::Tensor even = numbers(rank, {kWorld * 2, 3}, type), even_out = at::zeros_like(even);
    std::vector<int64_t> none;
    backend->alltoall_base(even_out, even, none, none)->wait();
    results.push_back(even_out);

    // Rank r sends r + o + 1 rows to rank o, and so receives as many from it.
    // Gloo's backend moves out of both lists of sizes.
    std::vector<int64_t> rows, rows_out;
    for (int o = 0; o < kWorld; ++o) rows.push_back(rank + o + 1);
    rows_out = rows;
    const int64_t total = kWorld * (rank + 1) + kWorld * (kWorld - 1) / 2;
    at::Tensor uneven = numbers(rank, {total, 3}, type), uneven_out = at::zeros({total, 3}, type);
    backend->alltoall_base(uneven_out, uneven, rows_out, rows)->wait();
    results.push_back(uneven_out);
    backend->barrier()->wait();
  }
  return results;
}

TEST(ShmBackend, MovesTheBytesThatGlooMoves) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo to compare with";
  const auto ours = on_ranks(open_shm, all_operations), gloo = on_ranks(open_gloo_of_host, all_operations);
  for (size_t rank = 0; rank < kWorld; ++rank) {
    ASSERT_EQ(ours[rank].size(), gloo[rank].size());
    ASSERT_EQ(ours[rank].size(), 20U);
    for (size_t i = 0; i < ours[rank].size(); ++i) {
      EXPECT_TRUE(at::equal(ours[rank][i], gloo[rank][i])) << "rank " << rank << ", result " << i;
    }
  }
}

TEST(ShmBackend, GathersWhatEachRankHas) {
  on_ranks(open_shm, [](const Backend& backend) {
    at::Tensor in = numbers(backend->getRank(), {5}, at::kInt), out = at::empty({5 * kWorld}, at::kInt);
    const auto work = backend->_allgather_base(out, in);
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
    EXPECT_TRUE(at::equal(
        out, at::cat({numbers(0, {5}, at::kInt), numbers(1, {5}, at::kInt), numbers(2, {5}, at::kInt)})));
    return std::vector<at::Tensor>();
  });
}

TEST(ShmBackend, RefusesWhatItCannotDo) {
  on_ranks(open_shm, [](const Backend& backend) {
    std::vector<at::Tensor> tensors{at::zeros({4})};
    try {
      backend->allreduce(tensors);
      ADD_FAILURE() << "sums are not supported";
    } catch (const c10::Error& e) {
      EXPECT_NE(std::string(e.what()).find("Backend aliquot does not support allreduce"), std::string::npos);
    }
    std::vector<at::Tensor> transposed{at::zeros({4, 3}).t()};
    EXPECT_THROW(backend->broadcast(transposed), UsageError);
    at::Tensor in = at::zeros({4}), small = at::zeros({4}), other = at::zeros({4 * kWorld}, at::kDouble);
    EXPECT_THROW(backend->_allgather_base(small, in), UsageError);
    EXPECT_THROW(backend->_allgather_base(other, in), UsageError);
    std::vector<int64_t> negative{-1, 4, 1}, none;
    EXPECT_THROW(backend->alltoall_base(small, in, negative, negative), UsageError);
    EXPECT_THROW(backend->alltoall_base(small, in, none, none), UsageError) << "4 rows do not divide by 3";
    backend->barrier()->wait();
    return std::vector<at::Tensor>();
  });
}

// torchrun keeps the store itself; rank 0 is a client of it like the others.
TEST(Connect, UsesTheStoreOfTheLauncher) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const std::string backend : {"auto", has_gloo() ? "gloo" : "shm"}) {
    // As after a restart of the ranks, which the launcher's store outlives.
    setenv("TORCHELASTIC_RESTART_COUNT", backend.c_str(), 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        Rendezvous r{.rank = rank,
                     .world = kWorld,
                     .local_rank = rank,
                     .local_world = kWorld,
                     .agent_store = true,
                     .source = "torchrun"};
        r.master_port = store->getPort();
        const Comm comm = Comm::connect(r, {.backend = backend});
        EXPECT_EQ(comm.backend(), backend == "auto" ? "shm" : backend);
        test::run_collectives(comm, 7, 50, 300'000);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace aliquot
