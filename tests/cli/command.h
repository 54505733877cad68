// Runs the built `aliquot` as a person would, and looks at what it leaves behind.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace aliquot::test {

/// A folder under the system's temporary one that goes away with its object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const;  ///< the file's path
  std::string read(const std::string& name) const;                            ///< empty if it is not there

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int code = -1;  ///< exit code, or -signal if one ended it
  double seconds = 0;
  std::string out, err;
};

/// A running `aliquot` (or another program), killed with its object. Variables of launchers are taken from
/// its environment.
class Command {
 public:
  /// `environment`: "NAME=value", or "NAME" to remove it.
  Command(std::vector<std::string> arguments, const std::vector<std::string>& environment = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  /// Its output so far.
  std::string out() const { return folder_.read("out"); }
  std::string err() const { return folder_.read("err"); }
  /// Waits for the end; after `limit` seconds the outcome is that of SIGKILL.
  Outcome wait(double limit = 30);

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  double started_ = 0;
};

/// The path of a program that was built: "aliquot".
std::string program(const std::string& name);

Outcome run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

/// Whether a process of that number exists, zombies included.
bool exists(pid_t pid);

/// Asks `condition` every few milliseconds until it holds; false after `limit` seconds.
template <class Condition>
bool eventually(Condition condition, double limit = 5);

double now();
void nap(double seconds);

template <class Condition>
bool eventually(Condition condition, double limit) {
  for (const double end = now() + limit; now() < end; nap(0.005)) {
    if (condition()) return true;
  }
  return condition();
}

}  // namespace aliquot::test
