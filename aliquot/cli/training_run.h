// What one rank of `aliquot train` works with, put together from the command line.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "aliquot/cli/train_options.h"
#include "aliquot/comm/comm.h"
#include "aliquot/data/sampler.h"
#include "aliquot/engine/engine.h"
#include "aliquot/models/model.h"

namespace aliquot {

struct TrainingRun {
  /// Collective. Throws ConfigError, IoError, UsageError as its parts do.
  TrainingRun(const TrainOptions& options, const Comm& comm);

  BatchSlice slice(int64_t micro_step) const;
  std::span<int64_t> ids_span();
  std::span<int64_t> targets_span();

  /// Collective: mean loss over the held-out rows.
  double evaluate();
  /// Collective: a Hugging Face folder, written by rank 0 one parameter at a time; `folder` is rank 0's
  /// alone.
  void save_model(const std::filesystem::path& folder);

  void load_weights();

  TrainOptions options;
  Comm comm;
  ModelConfig model_config;
  int64_t seq_len = 0, micro_batch = 0;
  Resolution resolution;
  std::shared_ptr<const TokenSource> source;
  std::unique_ptr<Sampler> sampler;
  std::shared_ptr<LanguageModel> model;
  std::unique_ptr<Engine> engine;
  at::Tensor ids, targets;  // [micro_batch, seq_len]
};

}  // namespace aliquot
