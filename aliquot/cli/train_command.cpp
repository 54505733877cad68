// aliquot train: checks the command line and the configuration, then starts the ranks, or becomes the one
// that another launcher has made of this process.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "aliquot/cli/commands.h"
#include "aliquot/cli/cores.h"
#include "aliquot/cli/launcher.h"
#include "aliquot/cli/machine.h"
#include "aliquot/cli/room.h"
#include "aliquot/cli/train_options.h"
#include "aliquot/comm/rendezvous.h"
#include "aliquot/config/load.h"
#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/models/config.h"

namespace aliquot {
namespace {

std::vector<std::string> rank_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{rank_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

[[noreturn]] void become_rank(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  throw Error(fmt::format("cannot run {}: {}", command[0], std::strerror(errno)));
}

int start_ranks(const TrainOptions& options, const std::vector<std::string>& command,
                const Environment& environment) {
  // Every rank reads both again; here their errors cost nothing and appear once.
  ModelConfig model = load_model_config(options.model);
  const Resolution resolution = resolve_config(load_config(options.config, {.lenient = options.lenient}),
                                               run_facts(options, options.ranks, model.hidden));
  // A preset's vocabulary is that of its data, which only the ranks read: at least bytes.
  const std::vector<std::string> presets = preset_names();
  if (std::ranges::find(presets, options.model) != presets.end())
    model.vocab_size = options.vocab_size.value_or(256);
  const std::string problem = room_problem(options.model, resolution.config, parameter_count(model),
                                           options.ranks, this_machine().memory_available);
  if (!problem.empty()) throw ConfigError(problem);
  const ThreadChoice threads = choose_threads(options.threads, environment, usable_cores(), options.ranks);
  log::info("{} rank{} on this host, {} thread{} each ({})", options.ranks, options.ranks == 1 ? "" : "s",
            threads.threads, threads.threads == 1 ? "" : "s", threads.because);
  return launch({.command = command, .ranks = options.ranks, .threads = threads.threads});
}

}  // namespace

std::string rank_program() {
  std::filesystem::path program;
  if (const char* named = std::getenv("ALIQUOT_RANK_BIN"); named != nullptr && *named != '\0') {
    program = named;
  } else {
    program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("aliquot-rank");
  }
  if (access(program.c_str(), X_OK) != 0) {
    throw Error(fmt::format(
        "{}: {}; it does the training and lies beside aliquot (build it, or name it in ALIQUOT_RANK_BIN)",
        program.string(), std::strerror(errno)));
  }
  return program;
}

void add_train_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("train", "Train a causal language model");
  const auto options = std::make_shared<TrainOptions>();
  add_train_options(*command, *options);
  command->footer(
      "Ctrl-C stops after the step in progress, with the summary; a second one ends at once.\n"
      "Under torchrun, mpirun or srun each process joins as the rank it is told to be.\n");
  command->callback([&invocation, options] {
    invocation.run = [&invocation, options] {
      // c10d's warnings of a peer that fails come with backtraces that would bury what failed.
      setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
      const std::vector<std::string> ranks = rank_command(invocation.arguments);
      const Environment environment = process_environment();
      if (is_launched(environment)) become_rank(ranks);
      return start_ranks(*options, ranks, environment);
    };
  });
}

}  // namespace aliquot
