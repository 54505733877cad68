// What `aliquot train` can be told: one set of flags, read by the launcher and again by every rank.
//
// `aliquot` checks them, starts the ranks and hands its arguments on unread; `aliquot-rank` parses the same
// arguments with the same function, so that the two can never disagree. No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "aliquot/config/resolve.h"

namespace CLI {
class App;
}

namespace aliquot {

struct TrainOptions {
  std::string model;                 ///< a preset's name, a Hugging Face folder, or a config.json
  std::string data;                  ///< a file or a folder, see data/tokens.h
  std::string data_format = "auto";  ///< for parse_data_format
  std::string config;                ///< ds_config.json, or its base64
  std::string out;                   ///< folder of metrics, summary and model; empty: see output_folder()
  int ranks = 1;                     ///< of this host; the environment's world where another launcher made it
  int64_t steps = 1000;              ///< optimizer steps, skipped ones included
  std::optional<int64_t> seq_len;    ///< unset: the model's longest context, at most 1,024
  std::optional<int64_t>
      vocab_size;        ///< of a preset; unset: what the data needs if it is text, else the preset's own
  uint64_t seed = 1234;  ///< of initial values, of the order of the data and of dropout

  int64_t eval_every = 0;       ///< steps between evaluations; 0: at the end only
  int64_t eval_rows = 256;      ///< held-out sequences that an evaluation reads, over all ranks; 0: all
  double eval_fraction = 0.01;  ///< of the data that is held out; 0: no evaluation
  int64_t log_every = 0;  ///< steps between plain progress lines; 0: as steps_per_print says, or by time

  // As in RunFacts: "auto" in the file becomes this, a different number in the file is an error.
  std::optional<int64_t> train_batch_size, micro_batch_size, gradient_accumulation_steps, warmup_steps;
  std::optional<double> lr, weight_decay, gradient_clipping;

  bool activation_checkpointing =
      false;                     ///< as the configuration's block of that name, which then may be missing
  int threads = 0;               ///< of each rank's operations; 0: OMP_NUM_THREADS, else cores / local ranks
  std::string backend = "auto";  ///< "auto", "shm", "gloo": CommOptions::backend
  double comm_timeout = 600;     ///< seconds until a silent peer that still lives is an error
  bool lenient = false;          ///< unknown keys of the file are warnings
};

/// Adds every flag of TrainOptions to `app`; parsing fills `options`.
void add_train_options(CLI::App& app, TrainOptions& options);

/// What the command line tells the configuration. `hidden_size` of the model, if known, resolves bucket
/// sizes.
RunFacts run_facts(const TrainOptions& options, int world_size, std::optional<int64_t> hidden_size);

/// options.out, or runs/<local date and time> if that is empty: only the rank that writes asks.
std::string output_folder(const TrainOptions& options);

}  // namespace aliquot
