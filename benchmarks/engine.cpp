// What the engine costs: stage 0 on one rank against a bare LibTorch loop with the same fused update, step by
// step in turn.
//
//   bench_engine [PAIRS]
//
// gpt2-small, vocabulary 8,192, sequence 256, micro-batch 4, bf16 with fp32 masters. Prints the ratio of the
// medians.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "aliquot/engine/module.h"
#include "aliquot/models/model.h"
#include "aliquot/optim/optimizer.h"

namespace aliquot {
namespace {

constexpr double kLr = 1e-3, kDecay = 0.01;

ModelConfig shape() {
  ModelConfig config = load_model_config("gpt2-small");
  config.vocab_size = 8192;
  config.context = 256;
  return config;
}

OptimizerConfig optimizer() {
  return {.kind = OptimizerKind::adamw, .lr = kLr, .weight_decay = kDecay};
}

// What a careful user would write: bf16 parameters, fp32 masters and moments, one fused pass per parameter.
class BareLoop {
 public:
  BareLoop() : model_(make_model(shape(), 1)) {
    const c10::AutoGradMode no_grad(false);
    for (at::Tensor& p : model_->parameters()) {
      masters_.push_back(p.detach().clone());
      for (auto* moments : {&first_, &second_}) moments->push_back(at::zeros(p.sizes(), at::kFloat));
      p.set_data(p.to(at::kBFloat16));
    }
  }

  void step(const at::Tensor& ids, const at::Tensor& targets) {
    model_->loss(ids, targets).backward();
    ++step_;
    std::vector<at::Tensor> parameters = model_->parameters();
    at::parallel_for(0, static_cast<int64_t>(parameters.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        update(parameters[static_cast<size_t>(i)], static_cast<size_t>(i));
    });
    for (at::Tensor& p : parameters) p.mutable_grad().reset();
  }

 private:
  void update(at::Tensor& p, size_t i) {
    kernels::Slice slice;
    slice.master = masters_[i].mutable_data_ptr<float>();
    slice.grad = p.grad().const_data_ptr();
    slice.grad_dtype = DType::bf16;
    slice.moment1 = first_[i].mutable_data_ptr<float>();
    slice.moment2 = second_[i].mutable_data_ptr<float>();
    slice.publish = p.mutable_data_ptr();
    slice.n = p.numel();
    kernels::Hyper hyper;
    hyper.lr = kLr;
    hyper.beta1 = 0.9;
    hyper.beta2 = 0.999;
    hyper.eps = 1e-8;
    hyper.weight_decay = kDecay;
    hyper.step = step_;
    aliquot::update(optimizer(), slice, hyper);
  }

  std::shared_ptr<LanguageModel> model_;
  std::vector<at::Tensor> masters_, first_, second_;
  int64_t step_ = 0;
};

class WithEngine {
 public:
  WithEngine() : model_(make_model(shape(), 1)), engine_(parameters_of(*model_), config()) {}
  void step(const at::Tensor& ids, const at::Tensor& targets) {
    engine_.backward(model_->loss(ids, targets));
    engine_.step();
  }

 private:
  static Config config() {
    Config config;
    config.bf16.enabled = true;
    config.gradient_clipping = 0;
    config.optimizer = optimizer();
    return config;
  }
  std::shared_ptr<LanguageModel> model_;
  Engine engine_;
};

double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace
}  // namespace aliquot

int main(int argc, char** argv) {
  using namespace aliquot;
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 9;
  const at::Tensor ids = at::randint(8192, {4, 256}, at::kLong),
                   targets = at::randint(8192, {4, 256}, at::kLong);
  BareLoop bare;
  WithEngine with;
  bare.step(ids, targets);
  with.step(ids, targets);
  std::vector<double> a, b, ratios;
  for (int i = 0; i < pairs; ++i) {
    a.push_back(milliseconds([&] { bare.step(ids, targets); }));
    b.push_back(milliseconds([&] { with.step(ids, targets); }));
    ratios.push_back(b.back() / a.back());
  }
  fmt::print("bare loop {:.0f} ms, engine {:.0f} ms, ratio pair by pair {:.3f} (median of {})\n", median(a),
             median(b), median(ratios), pairs);
  return 0;
}
