#include "aliquot/cli/train_options.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>

#include "aliquot/cli/option_group.h"

namespace aliquot {
namespace {

constexpr int kMostRanks = 1024, kMostThreads = 1024;  // of one host

void add_subject(CLI::App& app, TrainOptions& o) {
  OptionGroup group(app, "What to train");
  group
      .text("--model", o.model, "NAME|PATH",
            "A preset (gpt2-tiny, gpt2-small, gpt2-124m, llama-1b, llama-7b, ...), a Hugging Face folder, or "
            "its "
            "config.json")
      ->required();
  group.text("--data", o.data, "PATH", "Text (a file, or a folder of files, as bytes), or token ids")
      ->required();
  group.text("--config", o.config, "FILE", "ds_config.json in DeepSpeed's format")->required();
  group.flag("--lenient", o.lenient, "Unknown keys of the configuration are warnings, not errors");
  group
      .choice("--data-format", o.data_format, {"auto", "text", "llmc", "nanogpt", "megatron"},
              "What --data is")
      ->capture_default_str();
  group.whole("--seq-len", o.seq_len, 1, "Tokens of a sequence [the model's longest context, at most 1024]");
  group.whole("--vocab-size", o.vocab_size, 1,
              "Vocabulary of a preset [257 for text, else the preset's own]");
  group.flag("--activation-checkpointing", o.activation_checkpointing,
             "Compute the model's blocks again in backward instead of keeping them: less memory, more time");
}

void add_course(CLI::App& app, TrainOptions& o) {
  OptionGroup group(app, "Course of the run");
  group.whole("--steps", o.steps, 1, "Optimizer steps, skipped ones included")->capture_default_str();
  app.add_option("--seed", o.seed, "Of initial values, order of the data and dropout")
      ->type_name("N")
      ->capture_default_str()
      ->group("Course of the run");
  group.text(
      "--out", o.out, "DIR",
      "Folder for metrics.jsonl, summary.json, report.html, config.json and model/ [runs/<date and time>]");
  group
      .whole("--eval-every", o.eval_every, 0,
             "Steps between evaluations on held-out data; 0: at the end only")
      ->capture_default_str();
  group.whole("--eval-rows", o.eval_rows, 0, "Held-out sequences that an evaluation reads; 0: all of them")
      ->capture_default_str();
  group
      .number("--eval-fraction", o.eval_fraction, 0.0, 0.5,
              "Part of the data that is held out; 0: no evaluation")
      ->capture_default_str();
  group
      .whole("--log-every", o.log_every, 0,
             "Steps between progress lines where the output is no terminal; 0: steps_per_print of the "
             "configuration, "
             "else by time")
      ->capture_default_str();
}

void add_facts(CLI::App& app, TrainOptions& o) {
  OptionGroup group(app, "Values for \"auto\" in the configuration (a different number there is an error)");
  group.whole("--train-batch-size", o.train_batch_size, 1, "Sequences of a step, over all ranks");
  group.whole("--micro-batch-size", o.micro_batch_size, 1, "Sequences of a rank's micro-step");
  group.whole("--gradient-accumulation-steps", o.gradient_accumulation_steps, 1, "Micro-steps of a step");
  group.real("--lr", o.lr, 0, "Learning rate of the optimizer");
  group.real("--weight-decay", o.weight_decay, 0, "Weight decay of the optimizer");
  group.real("--gradient-clipping", o.gradient_clipping, 0, "Largest norm of the gradient; 0: not clipped");
  group.whole("--warmup-steps", o.warmup_steps, 1, "Steps in which the learning rate rises");
}

void add_ranks(CLI::App& app, TrainOptions& o) {
  OptionGroup group(app, "Ranks");
  group
      .number("--ranks", o.ranks, 1, kMostRanks,
              "Processes to start on this host; not with torchrun, mpirun or srun")
      ->capture_default_str();
  group
      .number("--threads", o.threads, 0, kMostThreads,
              "Threads of a rank; 0: OMP_NUM_THREADS, else cores / local ranks")
      ->capture_default_str();
  group
      .choice("--backend", o.backend, {"auto", "shm", "gloo"},
              "How ranks talk; auto: shm on one host, else gloo")
      ->capture_default_str();
  group
      .real("--comm-timeout", o.comm_timeout, 1,
            "Seconds until a silent rank is an error; a dead one is one at once")
      ->capture_default_str();
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
          .warmup_steps = options.warmup_steps,
          .activation_checkpointing = options.activation_checkpointing};
}

std::string output_folder(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("runs/{:%Y-%m-%d_%H-%M-%S}", local);
}

}  // namespace aliquot
