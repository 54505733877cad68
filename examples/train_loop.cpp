// The loop of the README as a whole program: `build/release/bin/train_loop examples/demo.json`. Alone it is
// one rank; torchrun --no-python, mpirun or srun start several, which share the batch.
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include "aliquot/comm/comm.h"
#include "aliquot/config/load.h"
#include "aliquot/config/resolve.h"
#include "aliquot/engine/module.h"
#include "aliquot/error.h"

namespace {

constexpr int64_t kSteps = 20;

/// Any module will do; it knows nothing of the engine.
struct Model : torch::nn::Module {
  torch::nn::Linear up = register_module("up", torch::nn::Linear(16, 64));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(64, 1));
  at::Tensor forward(const at::Tensor& x) { return down->forward(up->forward(x).relu()); }
};

void train(const char* config_file) {
  const aliquot::Environment environment = aliquot::process_environment();
  const aliquot::Comm comm = aliquot::is_launched(environment)
                                 ? aliquot::Comm::connect(aliquot::rendezvous_from(environment))
                                 : aliquot::Comm();
  const aliquot::Config config = aliquot::resolve_config(aliquot::load_config(config_file),
                                                         {.world_size = comm.size(), .total_steps = kSteps})
                                     .config;
  const auto model = std::make_shared<Model>();
  aliquot::Engine engine(aliquot::parameters_of(*model), config, comm);
  const int64_t micro_steps = kSteps * config.gradient_accumulation_steps;
  for (int64_t i = 0; i < micro_steps; ++i) {
    const at::Tensor x = at::randn({config.train_micro_batch_size_per_gpu, 16}), y = x.sum(1, true);
    const at::ScalarType type = model->up->weight.scalar_type();
    engine.backward(at::mse_loss(model->forward(x.to(type)).to(at::kFloat), y));
    if (engine.step() && comm.rank() == 0)
      fmt::print("step {} loss {:.4f}\n", engine.global_steps(), engine.last_step().loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw aliquot::UsageError("usage: train_loop DS_CONFIG.json");
    train(argv[1]);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_loop: {}\n", e.what());
    return 1;
  }
}
