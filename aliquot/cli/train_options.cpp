#include "aliquot/cli/train_options.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <limits>

namespace aliquot {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

CLI::Range at_least(int64_t least) {
  return {least, kMost, fmt::format("whole number of at least {}", least)};
}

CLI::Range positive(const char* name) {
  return {std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), name};
}

void add_subject(CLI::App& app, TrainOptions& o) {
  const char* group = "What to train";
  app.add_option(
         "--model", o.model,
         "A preset (gpt2-tiny, gpt2-small, gpt2-124m, llama-1b, llama-7b, ...), a Hugging Face folder, "
         "or its config.json")
      ->required()
      ->group(group);
  app.add_option("--data", o.data, "Text (a file, or a folder of files, as bytes), or a file of token ids")
      ->required()
      ->group(group);
  app.add_option("--config", o.config, "ds_config.json in DeepSpeed's format")->required()->group(group);
  app.add_option("--data-format", o.data_format, "What --data is")
      ->check(CLI::IsMember({"auto", "text", "llmc", "nanogpt", "megatron"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seq-len", o.seq_len,
                 "Tokens of a sequence; the model's longest context, at most 1024, if not given")
      ->check(at_least(1))
      ->group(group);
  app.add_option("--vocab-size", o.vocab_size,
                 "Vocabulary of a preset; what text needs (257), else the preset's own, if not given")
      ->check(at_least(1))
      ->group(group);
}

void add_course(CLI::App& app, TrainOptions& o) {
  const char* group = "Course of the run";
  app.add_option("--steps", o.steps, "Optimizer steps, skipped ones included")
      ->check(at_least(1))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", o.seed, "Of initial values, order of the data and dropout")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--out", o.out,
         "Folder for metrics.jsonl, summary.json, config.json and model/; runs/<date and time> if not given")
      ->group(group);
  app.add_option("--eval-every", o.eval_every,
                 "Steps between evaluations on held-out data; 0: at the end only")
      ->check(at_least(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--eval-rows", o.eval_rows, "Held-out sequences that an evaluation reads; 0: all of them")
      ->check(at_least(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--eval-fraction", o.eval_fraction, "Part of the data that is held out; 0: no evaluation")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-every", o.log_every,
                 "Steps between progress lines where the output is no terminal; 0: steps_per_print of the "
                 "configuration, else by time")
      ->check(at_least(0))
      ->capture_default_str()
      ->group(group);
}

void add_facts(CLI::App& app, TrainOptions& o) {
  const char* group = "Values for \"auto\" in the configuration (a different number there is an error)";
  app.add_option("--train-batch-size", o.train_batch_size, "Sequences of a step, over all ranks")
      ->check(at_least(1))
      ->group(group);
  app.add_option("--micro-batch-size", o.micro_batch_size, "Sequences of a rank's micro-step")
      ->check(at_least(1))
      ->group(group);
  app.add_option("--gradient-accumulation-steps", o.gradient_accumulation_steps, "Micro-steps of a step")
      ->check(at_least(1))
      ->group(group);
  app.add_option("--lr", o.lr, "Learning rate of the optimizer")->check(CLI::NonNegativeNumber)->group(group);
  app.add_option("--weight-decay", o.weight_decay, "Weight decay of the optimizer")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--gradient-clipping", o.gradient_clipping, "Largest norm of the gradient; 0: not clipped")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--warmup-steps", o.warmup_steps, "Steps in which the learning rate rises")
      ->check(at_least(0))
      ->group(group);
  app.add_flag("--lenient", o.lenient, "Unknown keys of the configuration are warnings, not errors")
      ->group(group);
}

void add_ranks(CLI::App& app, TrainOptions& o) {
  const char* group = "Ranks";
  app.add_option("--ranks", o.ranks, "Processes to start on this host; not with torchrun, mpirun or srun")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--threads", o.threads, "Threads of a rank; 0: OMP_NUM_THREADS, else cores / local ranks")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--backend", o.backend, "How ranks talk: auto is shm on one host, else gloo")
      ->check(CLI::IsMember({"auto", "shm", "gloo"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--comm-timeout", o.comm_timeout,
                 "Seconds until a silent rank is an error; a dead one is one at once")
      ->check(positive("seconds above 0"))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& options) {
  add_subject(app, options);
  add_course(app, options);
  add_facts(app, options);
  add_ranks(app, options);
}

RunFacts run_facts(const TrainOptions& options, int world_size, std::optional<int64_t> hidden_size) {
  return {.world_size = world_size,
          .hidden_size = hidden_size,
          .train_batch = options.train_batch_size,
          .micro_batch = options.micro_batch_size,
          .accumulation = options.gradient_accumulation_steps,
          .lr = options.lr,
          .weight_decay = options.weight_decay,
          .gradient_clipping = options.gradient_clipping,
          .total_steps = options.steps,
          .warmup_steps = options.warmup_steps};
}

std::string output_folder(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("runs/{:%Y-%m-%d_%H-%M-%S}", local);
}

}  // namespace aliquot
