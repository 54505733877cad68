#include "aliquot/cli/post_mortem.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <fstream>

#include "aliquot/cli/exit_codes.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

/// Processes that the kernel has killed for want of memory, on this machine or in a control group of it.
int64_t out_of_memory_kills() {
  std::ifstream vmstat("/proc/vmstat");
  std::string name;
  for (int64_t value = 0; vmstat >> name >> value;) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace

std::string name_of_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  const char* description = sigdescr_np(signal);
  if (name == nullptr || description == nullptr) return fmt::format("signal {}", signal);
  return fmt::format("SIG{} ({})", name, description);
}

PostMortem::PostMortem() : kernel_kills_(out_of_memory_kills()) {}

void PostMortem::add(const RankProcess& rank, bool by_us) {
  Failure failure;
  failure.rank = rank.rank();
  if (rank.report()) {
    failure.code = rank.report()->code;
    failure.message = rank.report()->message;
    failure.own = failure.code != kPeerFailed;
  } else {
    failure.code = rank.ended_by() != 0 ? code_of_signal(rank.ended_by()) : rank.exit_code();
    failure.message = describe(rank);
    failure.own = !by_us && failure.code != kPeerFailed;
  }
  failures_.push_back(std::move(failure));
}

std::string PostMortem::describe(const RankProcess& rank) const {
  std::string out = rank.ended_by() != 0 ? "killed by " + name_of_signal(rank.ended_by())
                                         : fmt::format("ended with exit code {}", rank.exit_code());
  if (rank.ended_by() == SIGKILL) {
    const bool kernel = out_of_memory_kills() > kernel_kills_;
    out += fmt::format("; {} (it held {:.2f} GiB at most)",
                       kernel ? "the kernel has just killed a process because memory ran out"
                              : "by someone's hand, or by the kernel because memory ran out",
                       static_cast<double>(rank.peak_bytes()) / (1 << 30));
  }
  if (!rank.last_line().empty()) out += "; its last line: " + rank.last_line();
  return out;
}

bool PostMortem::has_culprit() const {
  return std::ranges::any_of(failures_, &Failure::own);
}

const PostMortem::Failure& PostMortem::culprit() const {
  const auto own = std::ranges::find_if(failures_, &Failure::own);
  return own == failures_.end() ? failures_.front() : *own;
}

int PostMortem::exit_code() const {
  return culprit().code;
}

std::string PostMortem::text() const {
  const Failure& first = culprit();
  std::string out;
  for (const Failure& failure : failures_) {
    if (!failure.own || failure.message == first.message) continue;
    out += fmt::format("rank {} failed too: {}\n", failure.rank, failure.message);
  }
  return out + fmt::format("rank {} failed first: {}", first.rank, first.message);
}

void PostMortem::print() const {
  log::line("", text());
}

}  // namespace aliquot
