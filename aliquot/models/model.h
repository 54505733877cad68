// Language models as plain LibTorch modules: they know nothing of the engine. Parameters carry Hugging Face's
// names and layouts, so an export is a walk over them.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "aliquot/config/config.h"
#include "aliquot/models/config.h"

namespace aliquot {

/// Whether parameters get memory.
enum class Filling { now, by_engine };

class LanguageModel : public torch::nn::Module {
 public:
  /// ids [rows, positions], int64 → hidden states before the head [rows, positions, hidden]. Throws
  /// UsageError for more positions than the model's context.
  virtual at::Tensor hidden_states(const at::Tensor& ids) = 0;
  /// [vocab, hidden]; the token embedding itself where the head is tied.
  virtual const at::Tensor& head_weight() const = 0;

  /// [rows, positions, vocab].
  at::Tensor logits(const at::Tensor& ids);
  /// Mean cross-entropy of predicting targets [rows, positions] (−100: ignored), fp32; the logits of the
  /// whole batch never exist at once (loss.h).
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets);

  const ModelConfig& config() const { return config_; }

  /// Whether, and which, blocks are computed again in backward instead of being kept (engine/checkpoint.h).
  /// The bits of losses and gradients do not depend on it. For the next forward on. Throws UsageError for
  /// counts below 1.
  void set_activation_checkpointing(const ActivationCheckpointingConfig& config);

 protected:
  LanguageModel(ModelConfig config, Filling filling) : config_(std::move(config)), filling_(filling) {}

  /// Registers an fp32 parameter under a dotted name, making the modules on the way. make_model or the engine
  /// gives it its values.
  at::Tensor add_parameter(const std::string& name, at::IntArrayRef shape);
  void check_positions(const at::Tensor& ids) const;
  /// `x` through the blocks, in order, as set_activation_checkpointing says. `block(x, l)` may run again in
  /// backward: it holds what is to be as in forward by value, training or not above all.
  at::Tensor run_blocks(at::Tensor x,
                        const std::function<at::Tensor(const at::Tensor&, int64_t)>& block) const;

  ModelConfig config_;

 private:
  Filling filling_;
  ActivationCheckpointingConfig checkpointing_;
};

/// Builds and initialises a model as transformers does: equal in distribution, and the same for every world
/// size.
std::shared_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed);
/// Its shape alone: parameters without memory, which an engine fills one by one with `initialise_parameter`.
/// The same values as make_model's, but the model is never whole.
std::shared_ptr<LanguageModel> make_unfilled_model(const ModelConfig& config);
/// Writes the initial value of one parameter, by its name; each has random numbers of its own.
void initialise_parameter(const ModelConfig& config, uint64_t seed, const std::string& name,
                          at::Tensor& value);

std::shared_ptr<LanguageModel> make_gpt2(const ModelConfig& config, Filling filling);
std::shared_ptr<LanguageModel> make_llama(const ModelConfig& config, Filling filling);

}  // namespace aliquot
