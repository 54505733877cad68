// `aliquot-rank`: one rank, started by `aliquot train` or by another launcher. All that links torch in the
// command line.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "aliquot/cli/cores.h"
#include "aliquot/cli/exit_codes.h"
#include "aliquot/cli/failure_report.h"
#include "aliquot/cli/stop_signal.h"
#include "aliquot/cli/train_rank.h"
#include "aliquot/comm/gloo.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

FailureReport describe(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ConfigError& e) {
    return {kBadInput, e.what()};
  } catch (const CommError& e) {
    return {kPeerFailed, e.what()};
  } catch (const c10::Error& e) {
    return {kFailure, e.what_without_backtrace()};
  } catch (const std::bad_alloc&) {
    return {kFailure, "out of memory"};
  } catch (const std::exception& e) {
    return {kFailure, e.what()};
  } catch (...) {
    return {kFailure, "an exception of unknown type"};
  }
}

int tell(const FailureReport& report) {
  if (!report_failure(report)) log::line("", report.message);
  return report.code;
}

[[noreturn]] void end(int code) {
  std::fflush(nullptr);
  // Static destructors of LibTorch would meet threads that still run (Gloo's abort a finished run now and
  // then).
  std::_Exit(code);
}

// An exception that no thread catches would be an abort without a word of which rank it was.
void on_terminate() {
  const std::exception_ptr thrown = std::current_exception();
  end(tell(thrown ? describe(thrown) : FailureReport{kFailure, "std::terminate was called"}));
}

void print_version_info() {
  // "Intel(R) MKL-DNN v3.12.0 (Git Hash ...)"
  const std::string onednn = at::get_mkldnn_version();
  const size_t version = onednn.find(" v");
  fmt::print("torch={}\ncapability={}\nonednn={}\nbackends=shm{}\n", TORCH_VERSION, at::get_cpu_capability(),
             version == std::string::npos
                 ? "none"
                 : onednn.substr(version + 2, onednn.find(' ', version + 2) - version - 2),
             has_gloo() ? ", gloo" : "");
}

void check_ranks(const CLI::App& command, const TrainOptions& options, const Rendezvous& rendezvous) {
  if (command.count("--ranks") == 0 || options.ranks == rendezvous.world) return;
  throw ConfigError(fmt::format("--ranks {}, but {} has started {}; leave --ranks out", options.ranks,
                                rendezvous.source, rendezvous.world));
}

int train(const CLI::App& command, const TrainOptions& options) {
  try {
    const Environment environment = process_environment();
    const Rendezvous rendezvous = rendezvous_from(environment);
    check_ranks(command, options, rendezvous);
    const int cores = usable_cores();
    at::set_num_threads(choose_threads(options.threads, environment, cores, rendezvous.local_world).threads);
    const std::string advice = options.threads > 0 ? "" : thread_advice(environment, rendezvous, cores);
    if (rendezvous.rank == 0 && !advice.empty()) log::info("{}", advice);
    watch_stop_signal();
    train_rank(options, rendezvous);
    return kSuccess;
  } catch (...) {
    return tell(describe(std::current_exception()));
  }
}

int run(int argc, char** argv) {
  CLI::App app("One rank of `aliquot train`, which starts it", "aliquot-rank");
  TrainOptions options;
  bool version_info = false;
  app.add_flag("--version-info", version_info, "Print what was built in, as NAME=VALUE lines");
  CLI::App* command = app.add_subcommand("train", "Train as the rank that the environment names");
  add_train_options(*command, options);
  try {
    app.parse(argc, argv);
    if (!version_info && !command->parsed()) throw CLI::CallForHelp();
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kSuccess : kBadInput;
  }
  if (version_info) {
    print_version_info();
    return kSuccess;
  }
  return train(*command, options);
}

}  // namespace
}  // namespace aliquot

int main(int argc, char** argv) {
  std::set_terminate(aliquot::on_terminate);
  aliquot::end(aliquot::run(argc, argv));
}
