#include "aliquot/models/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "aliquot/engine/checkpoint.h"
#include "aliquot/engine/unfilled.h"
#include "aliquot/error.h"
#include "aliquot/models/loss.h"

namespace aliquot {
namespace {

uint64_t seed_of(uint64_t seed, const std::string& name) {
  uint64_t hash = 14695981039346656037ULL ^ seed;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  hash ^= hash >> 31;
  return hash * 0x9e3779b97f4a7c15ULL;
}

std::shared_ptr<LanguageModel> make(const ModelConfig& config, Filling filling) {
  return config.family == Family::gpt2 ? make_gpt2(config, filling) : make_llama(config, filling);
}

/// Blocks begin … end − 1.
struct Run {
  int64_t begin, end;
  bool checkpointed;
};

std::vector<Run> runs_of(const ActivationCheckpointingConfig& config, int64_t layers) {
  if (!config.enabled) return {{0, layers, false}};
  std::vector<Run> runs;
  if (config.number_checkpoints) {
    const int64_t n = std::min(*config.number_checkpoints, layers);
    for (int64_t i = 0; i < n; ++i) runs.push_back({i * layers / n, (i + 1) * layers / n, true});
  } else {
    for (int64_t l = 0; l < layers; ++l) runs.push_back({l, l + 1, l % config.every == 0});
  }
  return runs;
}

}  // namespace

void LanguageModel::set_activation_checkpointing(const ActivationCheckpointingConfig& config) {
  if (config.every < 1 || config.number_checkpoints.value_or(1) < 1) {
    throw UsageError(
        fmt::format("activation checkpointing: number_checkpoints {} and every {}; expected at least 1",
                    config.number_checkpoints.value_or(1), config.every));
  }
  checkpointing_ = config;
}

at::Tensor LanguageModel::run_blocks(
    at::Tensor x, const std::function<at::Tensor(const at::Tensor&, int64_t)>& block) const {
  for (const Run& run : runs_of(checkpointing_, config_.layers)) {
    // The model lives as long as a graph that may run its blocks.
    const auto forward = [block, run, self = weak_from_this().lock()](at::Tensor y) {
      for (int64_t l = run.begin; l < run.end; ++l) y = block(y, l);
      return y;
    };
    if (run.checkpointed) {
      x = checkpoint(CheckpointOptions{.name = fmt::format("of blocks {} to {}", run.begin, run.end - 1)},
                     forward, x);
    } else {
      x = forward(std::move(x));
    }
  }
  return x;
}

at::Tensor LanguageModel::add_parameter(const std::string& name, at::IntArrayRef shape) {
  torch::nn::Module* module = this;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; begin = dot + 1, dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* child = children.find(part);
    module = child != nullptr ? child->get()
                              : module->register_module(part, std::make_shared<torch::nn::Module>()).get();
  }
  return module->register_parameter(
      name.substr(begin), filling_ == Filling::now ? at::empty(shape, at::kFloat) : unfilled(shape));
}

void LanguageModel::check_positions(const at::Tensor& ids) const {
  if (ids.dim() != 2) {
    throw UsageError(fmt::format("a model's input has {} dimensions, expected [rows, positions]", ids.dim()));
  }
  if (ids.size(1) <= config_.context) return;
  throw UsageError(fmt::format("{} positions, but the model's context is {}: use a shorter --seq-len",
                               ids.size(1), config_.context));
}

at::Tensor LanguageModel::logits(const at::Tensor& ids) {
  return at::linear(hidden_states(ids), head_weight());
}

at::Tensor LanguageModel::loss(const at::Tensor& ids, const at::Tensor& targets) {
  return chunked_cross_entropy(hidden_states(ids).flatten(0, 1), head_weight(), targets.flatten());
}

// As transformers' _init_weights: normal matrices, GPT-2's residual projections narrower by √(2·layers), zero
// biases, unit norms, a zero row for padding.
void initialise_parameter(const ModelConfig& c, uint64_t seed, const std::string& name, at::Tensor& value) {
  const c10::AutoGradMode no_grad(false);
  if (name.ends_with(".bias")) {
    value.zero_();
  } else if (value.dim() == 1) {
    value.fill_(1.0);
  } else {
    const bool residual = c.family == Family::gpt2 && name.ends_with("c_proj.weight");
    const double std = residual ? c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers)) : c.init_std;
    value.normal_(0.0, std, at::detail::createCPUGenerator(seed_of(seed, name)));
    if (c.pad_token_id && name == "model.embed_tokens.weight") value.select(0, *c.pad_token_id).zero_();
  }
}

std::shared_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed) {
  std::shared_ptr<LanguageModel> model = make(config, Filling::now);
  for (const auto& item : model->named_parameters()) {
    at::Tensor value = item.value();
    initialise_parameter(config, seed, item.key(), value);
  }
  return model;
}

std::shared_ptr<LanguageModel> make_unfilled_model(const ModelConfig& config) {
  return make(config, Filling::by_engine);
}

}  // namespace aliquot
