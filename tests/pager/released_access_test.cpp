// An operation on a released parameter throws our text; none crashes. decisions: without the text ten of
// these would.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <functional>

#include "aliquot/engine/engine.h"
#include "aliquot/engine/gathered_parameters.h"
#include "aliquot/error.h"

namespace aliquot::test {
namespace {

struct Operation {
  const char* name;
  std::function<void(const at::Tensor&)> run;
};

std::vector<Operation> operations() {
  const at::Tensor x = at::ones({4, 4}), ids = at::zeros({2}, at::kLong);
  return {
      {"add", [=](const at::Tensor& w) { (void)w.add(x); }},
      {"mul", [=](const at::Tensor& w) { (void)w.mul(x); }},
      {"embedding", [=](const at::Tensor& w) { (void)at::embedding(w, ids); }},
      {"sum", [](const at::Tensor& w) { (void)w.sum(); }},
      {"clone", [](const at::Tensor& w) { (void)w.clone(); }},
      {"copy_",
       [=](const at::Tensor& w) {
         (void)at::empty({4, 4}).copy_(w);
       }},
      {"cat",
       [=](const at::Tensor& w) {
         (void)at::cat({w, x});
       }},
      {"norm", [](const at::Tensor& w) { (void)w.norm(); }},
      {"isfinite", [](const at::Tensor& w) { (void)at::isfinite(w); }},
      {"fill_", [](const at::Tensor& w) { at::Tensor(w).fill_(1); }},
      {"mm", [=](const at::Tensor& w) { (void)at::mm(x, w); }},
      {"linear", [=](const at::Tensor& w) { (void)at::linear(x, w); }},
      {"layer_norm",
       [=](const at::Tensor& w) {
         (void)at::layer_norm(x, {4, 4}, w, w);
       }},
      {"bmm", [=](const at::Tensor& w) { (void)at::bmm(x.unsqueeze(0), w.unsqueeze(0)); }},
      {"conv",
       [=](const at::Tensor& w) {
         (void)at::conv2d(x.view({1, 1, 4, 4}), w.view({1, 1, 4, 4}));
       }},
      {"sdpa",
       [](const at::Tensor& w) {
         const at::Tensor v = w.view({1, 1, 4, 4});
         (void)at::scaled_dot_product_attention(v, v, v);
       }},
      {"accessor", [](const at::Tensor& w) { (void)w.accessor<float, 2>(); }},
  };
}

Config stage3() {
  Config config;
  config.zero.stage = 3;
  config.zero.stage3_param_persistence_threshold = 0;
  config.optimizer = OptimizerConfig{};
  return config;
}

TEST(ReleasedAccess, ThrowsOurTextAndDoesNotCrash) {
  at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  const Engine engine({{"layer.weight", w}}, stage3());
  // Without the pager's callback nothing gathers the parameter.
  const at::RecordFunctionGuard no_callbacks(false);
  for (const Operation& operation : operations()) {
    try {
      operation.run(w.detach());
      ADD_FAILURE() << operation.name << " read a released parameter";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find("parameter layer.weight (unit 0, rank 0) is released"),
                std::string::npos)
          << operation.name << ": " << e.what();
    }
  }
}

TEST(ReleasedAccess, OperationsGatherWhatTheyRead) {
  at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  const Engine engine({{"layer.weight", w}}, stage3());
  for (const Operation& operation : operations()) {
    const std::string name = operation.name;
    if (name == "fill_" || name == "accessor") continue;
    EXPECT_NO_THROW(operation.run(w.detach())) << name;
  }
}

TEST(ReleasedAccess, ViewsAndMetadataGatherNothing) {
  at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  const Engine engine({{"layer.weight", w}}, stage3());
  const std::vector<std::pair<const char*, std::function<void()>>> free{
      {"t", [&] { (void)w.t(); }},
      {"view", [&] { (void)w.view(-1); }},
      {"detach", [&] { (void)w.detach(); }},
      {"empty_like", [&] { (void)at::empty_like(w); }},
      {"zeros_like", [&] { (void)at::zeros_like(w); }},
  };
  for (const auto& [name, run] : free) {
    run();
    EXPECT_EQ(engine.live_numel(), 0) << name;
  }
  (void)w.sum();
  EXPECT_EQ(engine.live_numel(), 16);
}

TEST(ReleasedAccess, WritesOutsideGatheredParametersAreErrorsAtEveryStage) {
  for (int stage = 0; stage < 4; ++stage) {
    at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
    Config config = stage3();
    config.zero.stage = stage;
    Engine engine({{"layer.weight", w}}, config);
    const at::Tensor free = w.detach();
    for (const auto& write : std::vector<std::function<void()>>{
             [&] { free.mul(1).copy_(free), at::Tensor(free).mul_(2); }, [&] { at::Tensor(free).zero_(); },
             [&] {
               at::Tensor out = free;
               at::add_out(out, free, free);
             },
             [&] { at::Tensor(free)[0].fill_(3); }}) {
      try {
        write();
        ADD_FAILURE() << "stage " << stage << ": a write went through";
      } catch (const std::exception& e) {
        EXPECT_NE(std::string(e.what()).find("would write parameter layer.weight outside GatheredParameters"),
                  std::string::npos)
            << e.what();
      }
    }
    EXPECT_EQ(engine.full_param("layer.weight").sum().item<double>(), 16.0) << "stage " << stage;
  }
}

TEST(ReleasedAccess, GatheredParametersMayBeReadByPointerAndWritten) {
  at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  Engine engine({{"layer.weight", w}}, stage3());
  {
    GatheredParameters scope(engine, {"layer.weight"});
    EXPECT_EQ(w.const_data_ptr<float>()[5], 1.0F);
    w.detach().fill_(2);
    scope.close();
  }
  EXPECT_EQ(engine.full_param("layer.weight").sum().item<double>(), 32.0);
  EXPECT_EQ(w.sum().item<double>(), 32.0);
}

TEST(ReleasedAccess, AParameterOutlivesItsEngine) {
  at::Tensor w = at::full({4, 4}, 3.0F).set_requires_grad(true);
  { const Engine engine({{"layer.weight", w}}, stage3()); }
  EXPECT_EQ(w.sum().item<double>(), 48.0);
  w.detach().fill_(1);
  EXPECT_EQ(w.sum().item<double>(), 16.0);
}

}  // namespace
}  // namespace aliquot::test
