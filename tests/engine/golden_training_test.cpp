// Every record of golden/training.json: the engine at each stage against PyTorch on the whole batch.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "aliquot/engine/engine.h"
#include "tests/support/models.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

using nlohmann::json;

const json& records() {
  static const json all =
      json::parse(std::ifstream(std::string(ALIQUOT_TEST_DATA) + "/training.json"))["records"];
  return all;
}

std::unique_ptr<Model> build(const json& record) {
  std::unique_ptr<Model> model;
  if (record["model"] == "mlp") {
    model = std::make_unique<Mlp>(record["unused"].get<bool>());
  } else {
    model = std::make_unique<Gpt>(record["unused"].get<bool>(), record["tied"].get<bool>());
  }
  for (const auto& prefix : record["frozen"]) model->freeze(prefix.get<std::string>());
  return model;
}

Config config_of(const json& record, int stage, int world) {
  Config config;
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.gradient_accumulation_steps = record["accumulation"];
  config.train_micro_batch_size_per_gpu = 12 / world / config.gradient_accumulation_steps;
  config.train_batch_size = 12;
  config.gradient_clipping = record["clip"];
  const json& params = record["optimizer"]["params"];
  OptimizerConfig optimizer{
      .kind = record["optimizer"]["type"] == "SGD" ? OptimizerKind::sgd : OptimizerKind::adamw,
      .lr = params["lr"],
      .weight_decay = params["weight_decay"]};
  optimizer.momentum = params.value("momentum", 0.0);
  if (params.contains("betas")) {
    optimizer.beta1 = params["betas"][0];
    optimizer.beta2 = params["betas"][1];
  }
  config.optimizer = optimizer;
  return config;
}

// Matrices decayed at one rate, vectors not decayed at another.
std::vector<ParamGroup> groups_of(const json& record, const Model& model) {
  std::vector<ParamGroup> groups;
  for (const json& group : record["groups"]) {
    ParamGroup& g = groups.emplace_back();
    g.lr = group["lr"];
    g.weight_decay = group["weight_decay"];
  }
  if (groups.empty()) return groups;
  std::map<const void*, int> seen;
  for (const NamedTensor& p : model.parameters()) {
    if (!seen.emplace(p.tensor.unsafeGetTensorImpl(), 1).second) continue;
    groups[p.tensor.dim() > 1 ? 0 : 1].names.push_back(p.name);
  }
  return groups;
}

void check_run(const json& record, int stage, const Comm& comm) {
  const std::unique_ptr<Model> model = build(record);
  const Config config = config_of(record, stage, comm.size());
  EngineOptions options;
  options.groups = groups_of(record, *model);
  Engine engine(model->parameters(), config, comm, options);
  const json& expected = record["pytorch"];
  const bool mlp = record["model"] == "mlp";
  for (int64_t step = 0; step < 10; ++step) {
    const auto batch = mlp ? mlp_batch(step) : gpt_batch(step);
    for (int64_t j = 0; j < config.gradient_accumulation_steps; ++j) {
      const auto [x, y] = micro_batch(batch, j, comm.rank(), comm.size(), config.gradient_accumulation_steps);
      engine.backward(model->loss(x, y));
      engine.step();
    }
    const double loss = expected["loss"][static_cast<size_t>(step)],
                 norm = expected["norm"][static_cast<size_t>(step)];
    EXPECT_NEAR(engine.last_step().loss, loss, 1e-6 * std::abs(loss)) << "step " << step;
    EXPECT_NEAR(engine.global_grad_norm(), norm, 1e-6 * norm) << "step " << step;
    EXPECT_TRUE(engine.was_step_applied());
  }
  for (const auto& [name, weights] : expected["weights"].items()) {
    const at::Tensor p = engine.full_param(name).flatten();
    for (size_t i = 0; i < weights["first"].size(); ++i) {
      EXPECT_NEAR(p[static_cast<int64_t>(i)].item<double>(), weights["first"][i].get<double>(), 2e-6)
          << name << " " << i;
    }
    // A key bias shifts every score of a row alike, so its gradient is rounding noise, which AdamW turns into
    // whole steps.
    if (name.ends_with("qkv.bias")) continue;
    EXPECT_NEAR(p.to(at::kDouble).sum().item<double>(), weights["sum"].get<double>(),
                2e-6 * static_cast<double>(p.numel()))
        << name;
  }
}

class GoldenTraining : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(GoldenTraining, EqualsPyTorchOnTheWholeBatch) {
  at::set_num_threads(1);
  const auto [stage, world] = GetParam();
  for (const json& record : records()) {
    SCOPED_TRACE(record["id"].get<std::string>());
    if (12 / world % record["accumulation"].get<int>() != 0) continue;
    run_ranks(world, [&](const Comm& comm) { check_run(record, stage, comm); });
  }
}

INSTANTIATE_TEST_SUITE_P(StagesAndWorlds, GoldenTraining,
                         testing::Combine(testing::Range(0, 4), testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) + "_world" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace aliquot::test
