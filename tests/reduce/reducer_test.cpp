// The reducer alone: gradients in any order, absent ones, late ones, several backwards; sums by rank.
#include "aliquot/reduce/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "aliquot/error.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

const std::vector<int64_t> kNumels{5, 64, 1, 200, 0, 63, 130};

std::vector<ParamSpec> specs_of(DType dtype) {
  std::vector<ParamSpec> specs;
  for (size_t i = 0; i < kNumels.size(); ++i) {
    specs.push_back({.name = fmt::format("p{}", i), .numel = kNumels[i], .ndim = 2, .dtype = dtype});
  }
  return specs;
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (size_t i = 0; i < kNumels.size(); ++i) out.push_back(fmt::format("p{}", i));
  return out;
}

/// Gradient of parameter `p` on rank `r` in backward `k`; none where (p + r + k) is a multiple of 4.
bool present(size_t p, int r, int k) {
  return (static_cast<int>(p) + r + k) % 4 != 0;
}
at::Tensor gradient(size_t p, int r, int k, at::ScalarType type) {
  return (at::arange(kNumels[p]) * 0.37 + 100.0 * r + 10.0 * k + static_cast<double>(p)).sin().to(type);
}

/// Σ_k R(g[·,k]) as [Note: arithmetic] A2, A3 writes it for sharded gradients; for replicated ones R(Σ_k g).
std::vector<float> expected_sum(size_t p, int world, int backwards, Spread spread, at::ScalarType type) {
  const auto value = [&](int r, int k, int64_t i) {
    return gradient(p, r, k, type).to(at::kFloat).const_data_ptr<float>()[i];
  };
  std::vector<float> sum(static_cast<size_t>(kNumels[p]));
  for (int64_t i = 0; i < kNumels[p]; ++i) {
    float total = 0;
    const bool by_backward = spread == Spread::sharded;
    for (int outer = 0; outer < (by_backward ? backwards : world); ++outer) {
      float part = 0;
      bool first = true;
      for (int inner = 0; inner < (by_backward ? world : backwards); ++inner) {
        const int k = by_backward ? outer : inner, r = by_backward ? inner : outer;
        if (!present(p, r, k)) continue;
        part = first ? value(r, k, i) : part + value(r, k, i);
        first = false;
      }
      total = outer == 0 ? part : total + part;
    }
    sum[static_cast<size_t>(i)] = total;
  }
  return sum;
}

struct Case {
  int stage;
  int world;
  DType dtype;
  bool overlap;
};

ReducerOptions options_of(int64_t bucket, bool overlap) {
  ReducerOptions options;
  options.bucket_numel = bucket;
  options.overlap = overlap;
  return options;
}

class ReducerSums : public testing::TestWithParam<Case> {};

TEST_P(ReducerSums, AreThoseOfTheNote) {
  const Case c = GetParam();
  const Placement placement = Placement::of_stage(c.stage);
  const at::ScalarType type = c.dtype == DType::fp32 ? at::kFloat : at::kBFloat16;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kBackwards = 3;
  for (const int64_t bucket : {1, 64, 65, 1'000'000}) {
    SCOPED_TRACE(bucket);
    run_ranks(c.world, [&](const Comm& comm) {
      const c10::AutoGradMode no_grad(false);
      const auto layout = std::make_shared<const Layout>(specs_of(c.dtype), comm.size());
      Reducer reducer(layout, placement, DType::fp32, comm, options_of(bucket, c.overlap),
                      std::make_shared<Meter>(), names());
      std::mt19937 random(seed + static_cast<unsigned>(comm.rank()));
      for (int k = 0; k < kBackwards; ++k) {
        std::vector<size_t> order(kNumels.size());
        for (size_t p = 0; p < order.size(); ++p) order[p] = p;
        std::ranges::shuffle(order, random);
        for (const size_t p : order) {
          if (present(p, comm.rank(), k))
            reducer.deliver(static_cast<int>(p), gradient(p, comm.rank(), k, type));
        }
        reducer.end_backward();
      }
      reducer.end_window();
      EXPECT_EQ(reducer.backwards(), kBackwards);
      for (int u = 0; u < static_cast<int>(layout->units().size()); ++u) {
        for (const Piece& piece : layout->pieces(u, comm.rank())) {
          const auto p = static_cast<size_t>(layout->segment({u, piece.segment}).param);
          const std::vector<float> sum = expected_sum(p, comm.size(), kBackwards, placement.grads, type);
          EXPECT_TRUE(reducer.used(static_cast<int>(p)));
          EXPECT_EQ(std::memcmp(reducer.gradients().at(u, piece.unit_offset), sum.data() + piece.param_offset,
                                static_cast<size_t>(piece.numel) * sizeof(float)),
                    0)
              << "parameter " << p << ", rank " << comm.rank();
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReducerSums,
                         testing::Values(Case{0, 1, DType::fp32, false}, Case{0, 3, DType::fp32, false},
                                         Case{1, 2, DType::bf16, false}, Case{2, 1, DType::bf16, false},
                                         Case{2, 3, DType::bf16, false}, Case{2, 2, DType::fp32, true},
                                         Case{3, 4, DType::bf16, true}),
                         [](const auto& info) {
                           return fmt::format("stage{}_world{}_{}{}", info.param.stage, info.param.world,
                                              name_of(info.param.dtype),
                                              info.param.overlap ? "_overlap" : "");
                         });

class OnTwoRanks : public testing::Test {
 protected:
  static void run(const std::function<void(Reducer&, const Comm&)>& body, int stage = 2) {
    run_ranks(2, [&](const Comm& comm) {
      const c10::AutoGradMode no_grad(false);
      const auto layout = std::make_shared<const Layout>(specs_of(DType::fp32), comm.size());
      Reducer reducer(layout, Placement::of_stage(stage), DType::fp32, comm, options_of(64, false),
                      std::make_shared<Meter>(), names());
      body(reducer, comm);
    });
  }
};

TEST_F(OnTwoRanks, WhatNobodyHasIsNotUsed) {
  for (const int stage : {0, 2}) {
    run(
        [](Reducer& reducer, const Comm& comm) {
          if (comm.rank() == 1) reducer.deliver(3, gradient(3, 1, 0, at::kFloat));
          reducer.end_backward();
          reducer.end_window();
          for (int p = 0; p < static_cast<int>(kNumels.size()); ++p) EXPECT_EQ(reducer.used(p), p == 3) << p;
          reducer.drop_window();
          EXPECT_FALSE(reducer.used(3));
          EXPECT_EQ(reducer.backwards(), 0);
        },
        stage);
  }
}

// As a re-entrant recomputation delivers: twice in one backward, after the bucket has left.
TEST_F(OnTwoRanks, ASecondDeliveryIsAddedToo) {
  run([](Reducer& reducer, const Comm& comm) {
    for (int times = 0; times < 2 + comm.rank(); ++times) {
      for (size_t p = kNumels.size(); p-- > 0;) reducer.deliver(static_cast<int>(p), at::ones({kNumels[p]}));
    }
    reducer.end_backward();
    reducer.end_window();
    const Layout layout(specs_of(DType::fp32), 2);
    for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
      for (const Piece& piece : layout.pieces(u, comm.rank())) {
        const auto* sum = reinterpret_cast<const float*>(reducer.gradients().at(u, piece.unit_offset));
        for (int64_t i = 0; i < piece.numel; ++i) ASSERT_EQ(sum[i], 5.0F);
      }
    }
  });
}

TEST_F(OnTwoRanks, AnotherNumberOfBackwardsIsNamed) {
  for (const int stage : {1, 2}) {
    std::atomic<int> named{0};
    try {
      run(
          [&](Reducer& reducer, const Comm& comm) {
            for (int k = 0; k < 1 + comm.rank(); ++k) {
              for (size_t p = kNumels.size(); p-- > 0;)
                reducer.deliver(static_cast<int>(p), at::ones({kNumels[p]}));
              reducer.end_backward();
            }
            reducer.end_window();
            comm.barrier("norm");
          },
          stage);
    } catch (const CommError& e) {
      named += std::string(e.what()).find("rank") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(named, 1) << "stage " << stage;
  }
}

}  // namespace
}  // namespace aliquot::test
