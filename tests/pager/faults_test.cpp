// Raw pointers into parameters: what they may not do ends the process with the parameter's name.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "aliquot/engine/engine.h"
#include "aliquot/memory/debug.h"
#include "tests/support/ranks.h"

namespace aliquot::test {
namespace {

class FaultsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// A stage-3 engine on two ranks; `misuse` gets rank 1's parameter, gathered before and released now, and a
  /// pointer from then.
  static void run(const std::function<void(const at::Tensor& w, const float* kept)>& misuse) {
    run_ranks(2, [&](const Comm& comm) {
      at::Tensor w = at::ones({100, 70}).set_requires_grad(true);
      Config config;
      config.zero.stage = 3;
      config.zero.stage3_param_persistence_threshold = 0;
      config.optimizer = OptimizerConfig{};
      Engine engine({{"layer.weight", w}}, config, comm);
      engine.backward(w.sum());
      const auto* kept = w.const_data_ptr<float>();  // gathered until the step
      engine.step();
      comm.barrier("all have trained");
      if (comm.rank() == 1) misuse(w, kept);
      comm.barrier("all have misused");
    });
  }
};

TEST_F(FaultsDeathTest, AWriteThroughAPointerIsNamed) {
  EXPECT_DEATH(
      run([](const at::Tensor&, const float* kept) { *const_cast<float*>(kept + 6999) = 2; }),
      "memory fault in parameter layer.weight \\(unit 0, rank [01]\\): it was written through a raw pointer");
}

TEST_F(FaultsDeathTest, AKeptPointerIsNamedWhenAskedFor) {
  EXPECT_DEATH(
      {
        debug::set_guarding(true);
        run([](const at::Tensor&, const float* kept) {
          if (*static_cast<const volatile float*>(kept) > 0) debug::set_guarding(false);
        });
      },
      "memory fault in parameter layer.weight .*used after its release");
}

}  // namespace
}  // namespace aliquot::test
