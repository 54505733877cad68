#include "tests/cli/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "aliquot/comm/rendezvous.h"

namespace aliquot::test {
namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& string : strings) out.push_back(string.data());
  out.push_back(nullptr);
  return out;
}

/// Ours, without what would make `aliquot train` a rank of somebody's.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  Environment environment = process_environment();
  for (const char* prefix : {"RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "MPI_", "SLURM_",
                             "OMP_NUM_THREADS", "TORCHELASTIC_", "ALIQUOT_RANK_BIN"}) {
    std::erase_if(environment, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    environment[change.substr(0, equals)] = equals == std::string::npos ? "" : change.substr(equals + 1);
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) out.push_back(name + "=" + value);
  return out;
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void nap(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "aliquot-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name) << text;
  return path_ / name;
}

std::string TemporaryFolder::read(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(path_ / name).rdbuf();
  return text.str();
}

Command::Command(std::vector<std::string> arguments, const std::vector<std::string>& environment)
    : started_(now()) {
  std::vector<std::string> variables = environment_with(environment);
  const int out = open((folder_.path() / "out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_APPEND, 0600);
  const int err = open((folder_.path() / "err").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_APPEND, 0600);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execve(arguments[0].c_str(), pointers(arguments).data(), pointers(variables).data());
    _exit(126);
  }
  close(out);
  close(err);
}

Command::~Command() {
  if (pid_ > 0) wait(0);
}

void Command::signal(int signal) const {
  kill(pid_, signal);
}

Outcome Command::wait(double limit) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .seconds = now() - started_,
          .out = out(),
          .err = err()};
}

std::string program(const std::string& name) {
  const char* folder = std::getenv("ALIQUOT_BIN");
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (folder == nullptr ? here : std::filesystem::path(folder)) / name;
}

Outcome run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  return Command(arguments, environment).wait();
}

bool exists(pid_t pid) {
  return kill(pid, 0) == 0;
}

}  // namespace aliquot::test
