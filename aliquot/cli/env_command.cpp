// aliquot env: what is here, and what is missing for what.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <sstream>

#include "aliquot/cli/commands.h"
#include "aliquot/cli/exit_codes.h"
#include "aliquot/cli/machine.h"
#include "aliquot/cli/rank_process.h"
#include "aliquot/error.h"
#include "aliquot/observe/human.h"

namespace aliquot {
namespace {

/// What `aliquot-rank --version-info` says, or why it says nothing.
struct RankInfo {
  std::map<std::string, std::string> values;
  std::string problem;

  std::string value(const std::string& key) const {
    const auto found = values.find(key);
    return found == values.end() ? "" : found->second;
  }
};

std::string read_all(const Fd& fd) {
  std::string out;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = read(fd.get(), buffer.data(), buffer.size())) > 0;) {
    out.append(buffer.data(), static_cast<size_t>(count));
  }
  return out;
}

RankInfo ask_rank_program() {
  RankInfo info;
  try {
    const std::string program = rank_program();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error("no pipe");
    const Fd reader(ends[0]);
    Fd writer(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
    std::string name = program, flag = "--version-info";
    char* arguments[] = {name.data(), flag.data(), nullptr};
    pid_t pid = 0;
    const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw Error(fmt::format("cannot run {}", program));
    writer.close();
    std::istringstream lines(read_all(reader));
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) throw Error(fmt::format("{} --version-info failed", program));
    for (std::string line; std::getline(lines, line);) {
      const size_t equals = line.find('=');
      if (equals != std::string::npos) info.values[line.substr(0, equals)] = line.substr(equals + 1);
    }
  } catch (const Error& e) {
    info.problem = e.what();
  }
  return info;
}

void row(std::string_view name, std::string_view value) {
  fmt::print("{:<14}{}\n", name, value);
}

std::string works(const std::string& problem) {
  return problem.empty() ? "works" : "does not work: " + problem;
}

void print_software(const RankInfo& rank) {
  row("aliquot", ALIQUOT_VERSION " (" ALIQUOT_BUILD_TYPE ", " ALIQUOT_COMPILER ")");
  if (rank.problem.empty()) {
    row("torch", fmt::format("{}, kernels for {}, oneDNN {}", rank.value("torch"), rank.value("capability"),
                             rank.value("onednn")));
    row("backends", rank.value("backends"));
  } else {
    row("torch", "unknown: " + rank.problem);
  }
}

void print_machine(const Machine& machine) {
  row("kernel", "Linux " + machine.kernel);
  row("cpu", machine.cpu.empty() ? "unknown" : machine.cpu);
  row("cpu features", fmt::format("{}", fmt::join(machine.cpu_features, " ")));
  row("cores", fmt::format("{} of {}", machine.cores, machine.online_cores));
  row("memory", fmt::format("{}, {} available", human_bytes(machine.memory_bytes),
                            human_bytes(machine.memory_available)));
  row("huge pages", fmt::format("transparent: {}, in shared memory: {}, reserved: {}", machine.huge_pages,
                                machine.shared_huge_pages, machine.reserved_huge_pages));
  row("memlock", machine.memlock_bytes ? human_bytes(*machine.memlock_bytes) : "no limit");
  row("io_uring", works(machine.io_uring));
  row("memfd", works(machine.memfd));
  row("pidfd", works(machine.pidfd));
  row("devices",
      machine.accelerators.empty() ? "cpu" : fmt::format("cpu, {}", fmt::join(machine.accelerators, ", ")));
}

std::vector<std::string> what_is_missing(const RankInfo& rank, const Machine& machine) {
  std::vector<std::string> out;
  const auto has = [&](const char* feature) {
    return std::ranges::find(machine.cpu_features, feature) != machine.cpu_features.end();
  };
  if (!rank.problem.empty()) out.push_back("aliquot-rank: nothing can be trained; run `make setup`");
  if (rank.problem.empty() && rank.value("backends").find("gloo") == std::string::npos) {
    out.push_back(
        "gloo: ranks must share one host; install its headers (Debian: libgloo-dev) and build again");
  }
  if (!machine.memfd.empty())
    out.push_back("memfd: ranks of one host cannot share memory; use --backend gloo");
  if (!machine.pidfd.empty())
    out.push_back("pidfd: `aliquot train` cannot start ranks; use torchrun or mpirun, or Linux 5.3");
  if (!has("avx2") && !has("asimd"))
    out.push_back("avx2: the update runs its plain kernels, slower with equal results");
  if (!has("amx_bf16") && !has("avx512_bf16") && !has("bf16")) {
    out.push_back("bf16 instructions: bf16 works, but matrix products are no faster than in fp32");
  }
  if (!machine.accelerators.empty())
    out.push_back("device support: this build computes on the CPU and leaves devices alone");
  return out;
}

int print_env() {
  const RankInfo rank = ask_rank_program();
  const Machine machine = this_machine();
  print_software(rank);
  print_machine(machine);
  const std::vector<std::string> missing = what_is_missing(rank, machine);
  fmt::print("\n{}\n", missing.empty() ? "Nothing is missing." : "Missing:");
  for (const std::string& line : missing) fmt::print("  {}\n", line);
  return kSuccess;
}

}  // namespace

void add_env_command(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "env", "Show versions, processor, memory and backends, and what is missing for what");
  command->callback([&invocation] { invocation.run = print_env; });
}

}  // namespace aliquot
