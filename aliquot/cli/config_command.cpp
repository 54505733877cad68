// aliquot config: a ds_config.json as it will be obeyed, or all that is wrong with it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "aliquot/cli/commands.h"
#include "aliquot/cli/exit_codes.h"
#include "aliquot/cli/option_group.h"
#include "aliquot/config/load.h"
#include "aliquot/config/print.h"
#include "aliquot/config/resolve.h"
#include "aliquot/models/config.h"

namespace aliquot {
namespace {

struct ConfigOptions {
  std::string file;
  int world = 1;
  std::string model;
  std::optional<int64_t> steps;
  bool lenient = false;
};

int print_config(const ConfigOptions& options) {
  const LoadedConfig loaded = load_config(options.file, {.lenient = options.lenient});
  RunFacts facts{.world_size = options.world, .total_steps = options.steps};
  if (!options.model.empty()) facts.hidden_size = load_model_config(options.model).hidden;
  const Resolution resolution = resolve_config(loaded, facts);
  fmt::print("{}\n", resolved_json(resolution.config));
  const std::string table = auto_table(resolution), notes = notes_text(resolution);
  fmt::print(stderr, "{}{}{}", table, table.empty() || notes.empty() ? "" : "\n", notes);
  return kSuccess;
}

}  // namespace

void add_config_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "config",
      "Print a ds_config.json as it will be obeyed, or everything that is wrong with it (exit code 2)");
  const auto options = std::make_shared<ConfigOptions>();
  command->add_option("file", options->file, "ds_config.json")->required()->type_name("FILE");
  OptionGroup group(*command, "Options");
  group.number("--world", options->world, 1, kMost<int>, "Ranks of the run, for batch sizes")
      ->capture_default_str();
  group.text("--model", options->model, "NAME|PATH",
             "Preset, Hugging Face folder or config.json, for bucket sizes");
  group.whole("--steps", options->steps, 1, "Steps of the run, for schedules");
  group.flag("--lenient", options->lenient, "Unknown keys are warnings, not errors");
  command->footer(
      "The resolved file goes to standard output; what each \"auto\" became and notes go to standard "
      "error.\n");
  command->callback(
      [&invocation, options] { invocation.run = [options] { return print_config(*options); }; });
}

}  // namespace aliquot
