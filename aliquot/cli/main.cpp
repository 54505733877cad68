// `aliquot`: what needs no torch itself, and the start of what does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "aliquot/cli/commands.h"
#include "aliquot/cli/exit_codes.h"
#include "aliquot/config/schema.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

/// A sentence with the nearest name if one was mistyped: CLI11 says what it did not expect, but not what was
/// meant.
std::string suggestion(const CLI::App& app) {
  std::vector<std::string> given = app.remaining(), known;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (app.get_subcommands().empty()) known.push_back(command->get_name());
    if (!command->parsed()) continue;
    given = command->remaining();
    for (const CLI::Option* option : command->get_options()) known.push_back(option->get_name());
  }
  for (const std::string& argument : given) {
    const std::string name = argument.substr(0, argument.find('='));
    const std::string near = schema::nearest(name, known);
    if (!near.empty()) return fmt::format("There is no {}; did you mean {}?\n", name, near);
  }
  return "";
}

int run(int argc, char** argv) {
  Invocation invocation{.arguments = {argv + 1, argv + argc}, .run = {}};
  CLI::App app("Trains language models with ZeRO from one ds_config.json", "aliquot");
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  add_train_command(app, invocation);
  add_config_command(app, invocation);
  add_env_command(app, invocation);
  add_bench_command(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) == 0) return kSuccess;
    fmt::print(stderr, "{}", suggestion(app));
    return kBadInput;
  }
  return invocation.run();
}

}  // namespace
}  // namespace aliquot

int main(int argc, char** argv) {
  try {
    return aliquot::run(argc, argv);
  } catch (const aliquot::ConfigError& e) {
    aliquot::log::line("", e.what());
    return aliquot::kBadInput;
  } catch (const std::exception& e) {
    aliquot::log::line("", e.what());
    return aliquot::kFailure;
  }
}
