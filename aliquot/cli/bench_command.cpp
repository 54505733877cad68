// aliquot bench: what this machine does, and what is made of it.
#include <CLI/CLI.hpp>

#include "aliquot/cli/bench_io.h"
#include "aliquot/cli/commands.h"

namespace aliquot {

void add_bench_command(CLI::App& app, Invocation& invocation) {
  CLI::App* bench = app.add_subcommand("bench", "Measure parts of Aliquot beside what this machine can do");
  bench->require_subcommand(1);
  add_bench_io(*bench, invocation);
}

}  // namespace aliquot
