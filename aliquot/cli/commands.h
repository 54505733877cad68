// The sub-commands of `aliquot`: one function and one file each.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aliquot {

/// What main() hands to the sub-commands, and what the chosen one hands back.
struct Invocation {
  std::vector<std::string> arguments;  ///< as typed, without the program's name
  std::function<int()> run;            ///< set by the sub-command that was given; returns the exit code
};

void add_train_command(CLI::App& app, Invocation& invocation);
void add_config_command(CLI::App& app, Invocation& invocation);
void add_env_command(CLI::App& app, Invocation& invocation);
void add_bench_command(CLI::App& app, Invocation& invocation);

/// The program of the ranks: $ALIQUOT_RANK_BIN, else the one beside this program. Throws Error if it cannot
/// be executed.
std::string rank_program();

}  // namespace aliquot
