// Stands in for aliquot-rank in tests of the launcher: does what $ACT says for its rank, "0:print
// hello;1:fail it broke".
//
// Acts of one rank follow each other: "1:print a,sleep 0.5,exit 3". Its pid goes to the file
// $ACT_DIR/pid.<rank>.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "aliquot/cli/failure_report.h"
#include "aliquot/cli/stop_signal.h"

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void nap(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) nap(60);
}

void note_pid(const std::string& name) {
  std::ofstream(environment("ACT_DIR") + "/pid." + name) << getpid() << "\n";
}

/// A child that outlives us unless somebody ends it.
void spawn_sleeper() {
  if (fork() != 0) return;
  signal(SIGTERM, SIG_IGN);
  note_pid("child" + environment("RANK"));
  sleep_for_ever();
}

void wait_for_stop() {
  while (!aliquot::stop_requested()) nap(0.005);
  std::printf("rank %s stopped cleanly\n", environment("RANK").c_str());
}

void act(const std::string& verb, const std::string& argument) {
  if (verb == "print") std::printf("%s\n", argument.c_str());
  if (verb == "warn") std::fprintf(stderr, "%s\n", argument.c_str());
  if (verb == "tail") std::fprintf(stderr, "%s", argument.c_str());
  if (verb == "env") std::printf("%s=%s\n", argument.c_str(), environment(argument.c_str()).c_str());
  if (verb == "sleep") nap(std::stod(argument));
  if (verb == "hang") sleep_for_ever();
  if (verb == "exit") std::exit(std::stoi(argument));
  if (verb == "report") {
    const size_t space = argument.find(' ');
    const int code = std::stoi(argument.substr(0, space));
    if (!aliquot::report_failure({code, argument.substr(space + 1)})) std::puts("nobody to report to");
    std::exit(code);
  }
  if (verb == "report-long") {
    aliquot::report_failure({1, std::string(std::stoul(argument), 'x')});
    std::exit(1);
  }
  if (verb == "ignore") {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
  }
  if (verb == "raise") raise(std::stoi(argument));
  if (verb == "spawn") spawn_sleeper();
  if (verb == "await-stop") wait_for_stop();
  if (verb == "read") std::printf("read %d\n", std::getchar());
}

std::string script_of(const std::string& rank) {
  std::istringstream scripts(environment("ACT"));
  for (std::string script; std::getline(scripts, script, ';');) {
    if (script.starts_with(rank + ":")) return script.substr(rank.size() + 1);
  }
  return "";
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  aliquot::watch_stop_signal();
  note_pid(environment("RANK"));
  std::istringstream script(script_of(environment("RANK")));
  for (std::string line; std::getline(script, line, ',');) {
    const size_t space = line.find(' ');
    act(line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1));
  }
  return 0;
}
