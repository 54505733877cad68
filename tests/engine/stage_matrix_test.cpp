// The same training run for every stage and setting: bit for bit where [Note: arithmetic] says so (E1–E4),
// within its gradient bound elsewhere. One run of ranks per world size goes through all its cells.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "aliquot/engine/engine.h"
#include "aliquot/memory/debug.h"
#include "tests/support/models.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

struct Cell {
  int stage = 0;
  DType dtype = DType::fp32;
  int64_t accumulation = 1;
  OptimizerKind optimizer = OptimizerKind::adamw;
  int64_t bucket = 500'000'000, persistence = 0, live = 1'000'000'000, reuse = 1'000'000'000;
  bool overlap = false;
  bool bf16_moments = false;
  bool optimizer_on_nvme = false, params_on_nvme = false;
  int64_t buffers = 4;
  double ratio = 1.0;
};

struct Training {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> masters;
  std::vector<float> first_gradient;  // of blocks.1.up.weight, before the first step

  bool operator==(const Training& other) const {
    // NaN never occurs: gradients are finite in every cell.
    return losses == other.losses && norms == other.norms && masters == other.masters;
  }
};

constexpr int kSteps = 10;

Config config_of(const Cell& cell, int world) {
  Config config;
  config.zero.stage = cell.stage;
  config.zero.reduce_bucket_size = cell.bucket;
  config.zero.overlap_comm = cell.overlap;
  config.zero.stage3_param_persistence_threshold = cell.persistence;
  config.zero.stage3_max_live_parameters = cell.live;
  config.zero.stage3_max_reuse_distance = cell.reuse;
  config.fp16.enabled = cell.dtype == DType::fp16;
  config.fp16.initial_scale_power = 8;
  config.bf16.enabled = cell.dtype == DType::bf16;
  config.bf16.optimizer_states = cell.bf16_moments;
  const std::vector<std::string> nvme{std::filesystem::temp_directory_path() / "aliquot-stage-matrix"};
  if (cell.optimizer_on_nvme) {
    config.zero.offload_optimizer = {
        .device = OffloadDevice::nvme, .nvme_path = nvme, .ratio = cell.ratio, .buffer_count = cell.buffers};
    config.zero.sub_group_size = 5000;  // several tiles
  }
  if (cell.params_on_nvme) {
    config.zero.offload_param = {
        .device = OffloadDevice::nvme, .nvme_path = nvme, .max_in_cpu = cell.buffers * 500};
  }
  config.gradient_accumulation_steps = cell.accumulation;
  config.train_micro_batch_size_per_gpu = 18 / world / cell.accumulation;
  config.train_batch_size = 18;
  config.gradient_clipping = 0.5;
  config.optimizer = OptimizerConfig{.kind = cell.optimizer, .lr = 1e-2, .weight_decay = 0.1};
  return config;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

Training train(const Cell& cell, const Comm& comm) {
  Gpt model(false, /*tied=*/true);
  Engine engine(model.parameters(), config_of(cell, comm.size()), comm);
  Training run;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto batch = gpt_batch(step, {}, 18);
    for (int64_t j = 0; j < cell.accumulation; ++j) {
      const auto [x, y] = micro_batch(batch, j, comm.rank(), comm.size(), cell.accumulation);
      engine.backward(model.loss(x, y));
      if (step == 0 && j + 1 == cell.accumulation) {
        run.first_gradient = values_of(*engine.full_grad("blocks.1.up.weight"));
      }
      engine.step();
    }
    run.losses.push_back(engine.last_step().loss);
    run.norms.push_back(engine.global_grad_norm());
  }
  EXPECT_EQ(engine.skipped_steps(), 0);
  EXPECT_EQ(engine.live_numel() > 0, false) << "parameters stay gathered after step()";
  for (const std::string& name : engine.names()) run.masters[name] = values_of(engine.full_param(name));
  return run;
}

/// Runs cells on `world` ranks; results are rank 0's, and every rank must have got the same.
class Matrix {
 public:
  explicit Matrix(int world) : world_(world) {}

  std::vector<Training> run(const std::vector<Cell>& cells) const {
    std::vector<Training> results(cells.size());
    std::mutex mutex;
    run_ranks(world_, [&](const Comm& comm) {
      for (size_t i = 0; i < cells.size(); ++i) {
        Training result = train(cells[i], comm);
        comm.barrier("cell");
        const std::lock_guard lock(mutex);
        if (results[i].losses.empty()) {
          results[i] = std::move(result);
        } else {
          EXPECT_TRUE(results[i] == result) << "ranks disagree in cell " << i;
        }
      }
    });
    return results;
  }

 private:
  int world_;
};

class StageMatrix : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    debug::set_poisoning(true);
    debug::set_guarding(true);
  }
  void TearDown() override {
    debug::set_poisoning(false);
    debug::set_guarding(false);
  }
};

// |ΔG| ≤ 2·N·K·2⁻²⁴·Σ|g|: G is an average here, and Σ|g| is at least |G|·N·K, so the bound is checked against
// a gradient of magnitudes taken as the largest element.
void expect_within_gradient_bound(const Training& a, const Training& b, int64_t contributions) {
  float largest = 0;
  for (const float g : a.first_gradient) largest = std::max(largest, std::abs(g));
  const double bound = 2.0 * static_cast<double>(contributions) * std::ldexp(1.0, -24) * largest * 4;
  for (size_t i = 0; i < a.first_gradient.size(); ++i) {
    EXPECT_NEAR(a.first_gradient[i], b.first_gradient[i], bound) << i;
  }
}

TEST_P(StageMatrix, StagesGiveTheSameRun) {
  const int world = GetParam();
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const int64_t accumulation : {1, 3}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " accumulation " + std::to_string(accumulation));
      std::vector<Cell> cells;
      for (int stage = 0; stage < 4; ++stage)
        cells.push_back({.stage = stage, .dtype = dtype, .accumulation = accumulation});
      const std::vector<Training> runs = Matrix(world).run(cells);
      EXPECT_TRUE(runs[0] == runs[1]) << "E1: stage 1 differs from stage 0";
      EXPECT_TRUE(runs[2] == runs[3]) << "E1: stage 3 differs from stage 2";
      if (accumulation == 1 || world == 1) {
        EXPECT_TRUE(runs[0] == runs[2]) << "E2: stage 2 differs from stage 0";
      } else if (dtype == DType::fp32) {
        expect_within_gradient_bound(runs[0], runs[2], world * accumulation);
      }
    }
  }
}

TEST_P(StageMatrix, SettingsNeverChangeABit) {
  const int world = GetParam();
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    std::vector<Cell> cells{{.stage = stage, .dtype = DType::bf16, .accumulation = 3}};
    for (const int64_t bucket : {1, 63, 64, 65, 1'000'000'000}) {
      cells.push_back({.stage = stage,
                       .dtype = DType::bf16,
                       .accumulation = 3,
                       .bucket = bucket,
                       .overlap = bucket < 64});
    }
    for (const int64_t size : {0, 63, 64, 65}) {
      cells.push_back({.stage = stage,
                       .dtype = DType::bf16,
                       .accumulation = 3,
                       .persistence = size,
                       .live = size,
                       .reuse = size});
    }
    const std::vector<Training> runs = Matrix(world).run(cells);
    for (size_t i = 1; i < runs.size(); ++i) EXPECT_TRUE(runs[0] == runs[i]) << "E3: cell " << i;
  }
}

TEST_P(StageMatrix, EveryOptimizerGivesTheSameRunAtEveryStage) {
  const int world = GetParam();
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lion,
                                   OptimizerKind::adagrad, OptimizerKind::lamb}) {
    SCOPED_TRACE("optimizer " + std::to_string(static_cast<int>(kind)));
    std::vector<Cell> cells;
    for (int stage = 0; stage < 4; ++stage)
      cells.push_back({.stage = stage, .dtype = DType::bf16, .optimizer = kind});
    const std::vector<Training> runs = Matrix(world).run(cells);
    for (int stage = 1; stage < 4; ++stage)
      EXPECT_TRUE(runs[0] == runs[static_cast<size_t>(stage)]) << "stage " << stage;
  }
}

TEST_P(StageMatrix, OffloadNeverChangesABit) {
  if (GetParam() > 2) GTEST_SKIP() << "one rank and two are enough";
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const int64_t accumulation : {1, 3}) {
      for (const int stage : {1, 2, 3}) {
        SCOPED_TRACE(testing::Message()
                     << "stage " << stage << ", " << name_of(dtype) << ", accumulation " << accumulation);
        const Cell none{.stage = stage, .dtype = dtype, .accumulation = accumulation};
        std::vector<Cell> cells{none};
        const auto with = [&](bool optimizer, bool params, int64_t buffers, double ratio) {
          Cell& cell = cells.emplace_back(none);
          cell.optimizer_on_nvme = optimizer;
          cell.params_on_nvme = params;
          cell.buffers = buffers;
          cell.ratio = ratio;
        };
        with(true, false, 4, 1.0);
        with(true, false, 1, 0.3);
        if (stage == 3) {
          with(false, true, 0, 1.0);
          with(true, true, 2, 1.0);
          with(true, true, 3, 0.5);
        }
        const std::vector<Training> runs = Matrix(GetParam()).run(cells);
        for (size_t i = 1; i < runs.size(); ++i) EXPECT_TRUE(runs[0] == runs[i]) << "cell " << i;
      }
    }
  }
}

TEST_P(StageMatrix, OffloadKeepsSixteenBitMoments) {
  Cell cell{.stage = 3, .dtype = DType::bf16, .bf16_moments = true};
  Cell offloaded = cell;
  offloaded.optimizer_on_nvme = offloaded.params_on_nvme = true;
  const std::vector<Training> runs = Matrix(GetParam()).run({cell, offloaded});
  EXPECT_TRUE(runs[0] == runs[1]);
}

// Random numbers of stochastic rounding belong to the element, whatever rank or tile it is in.
TEST_P(StageMatrix, SixteenBitMomentsGiveTheSameRunAtEveryStage) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lion}) {
    std::vector<Cell> cells;
    for (int stage = 0; stage < 4; ++stage) {
      cells.push_back({.stage = stage, .dtype = DType::bf16, .optimizer = kind, .bf16_moments = true});
    }
    cells.push_back({.dtype = DType::bf16, .optimizer = kind});
    const std::vector<Training> runs = Matrix(GetParam()).run(cells);
    for (size_t stage = 1; stage < 4; ++stage) EXPECT_TRUE(runs[0] == runs[stage]) << "stage " << stage;
    EXPECT_FALSE(runs[0] == runs[4]) << "moments are fp32 all the same";
    EXPECT_NEAR(runs[0].losses.back(), runs[4].losses.back(), 0.02 * runs[4].losses.back());
  }
}

TEST_P(StageMatrix, RunToRun) {
  const Cell cell{.stage = 3, .dtype = DType::bf16, .accumulation = 3, .bucket = 64, .overlap = true};
  const std::vector<Training> runs = Matrix(GetParam()).run({cell, cell});
  EXPECT_TRUE(runs[0] == runs[1]);
}

INSTANTIATE_TEST_SUITE_P(Worlds, StageMatrix, testing::Values(1, 2, 3),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace
}  // namespace aliquot::test
