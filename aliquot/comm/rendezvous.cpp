#include "aliquot/comm/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "aliquot/comm/slurm.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

/// What a launcher calls the four numbers of a rank. The second name of a pair counts where the first is not
/// set.
struct Family {
  using Names = std::pair<std::string_view, std::string_view>;
  std::string_view source;
  Names rank, world, local_rank, local_world;
};

// DeepSpeed's launcher says LOCAL_SIZE.
constexpr Family kPlain{
    "RANK", {"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}};
constexpr Family kOpenMpi{"mpirun",
                          {"OMPI_COMM_WORLD_RANK", ""},
                          {"OMPI_COMM_WORLD_SIZE", ""},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", ""},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", ""}};
// Hydra, which starts the ranks of MPICH and Intel MPI, names the local ones; srun --mpi=pmi2 leaves that to
// Slurm.
constexpr Family kPmi{
    "PMI", {"PMI_RANK", ""}, {"PMI_SIZE", ""}, {"MPI_LOCALRANKID", "SLURM_LOCALID"}, {"MPI_LOCALNRANKS", ""}};
// A job has SLURM_NTASKS; srun -n may start fewer in a step of it.
constexpr Family kSlurm{
    "srun", {"SLURM_PROCID", ""}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID", ""}, {}};

constexpr std::string_view kVariables[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "LOCAL_SIZE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_NODEID",
                                           "SLURM_TASKS_PER_NODE",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_JOB_NODELIST",
                                           "SLURM_STEP_NODELIST",
                                           "MASTER_ADDR",
                                           "MASTER_PORT"};

// MASTER_PORT where nobody gives it: above the well-known ports, below Linux's ephemeral ones (32768) for the
// most part.
constexpr int kFirstPort = 20000, kPorts = 20000;

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

class Resolver {
 public:
  explicit Resolver(const Environment& environment) : environment_(environment) {}

  /// The family that decides; null if no launcher was here.
  const Family* family() const {
    if (has(kPlain.rank) || has(kPlain.world) || has(kPlain.local_rank) || has(kPlain.local_world))
      return &kPlain;
    if (has(kOpenMpi.rank) || has(kOpenMpi.world)) return &kOpenMpi;
    if (has(kPmi.rank) || has(kPmi.world)) return &kPmi;
    if (has(kSlurm.rank) && !in_batch_script()) return &kSlurm;
    return nullptr;
  }

  Rendezvous resolve() const {
    Rendezvous out;
    const Family* chosen = family();
    if (chosen == nullptr) return out;
    out.source = from_torchrun(*chosen) ? "torchrun" : chosen->source;
    out.rank = required(chosen->rank);
    out.world = required(chosen->world);
    if (out.world < 1) fail(fmt::format("a world of {} ranks; expected at least 1", out.world));
    if (out.rank < 0 || out.rank >= out.world) {
      fail(fmt::format("rank {} in a world of {}; expected 0 to {}", out.rank, out.world, out.world - 1));
    }
    reject_contradictions(*chosen, out);
    resolve_local(*chosen, out);
    resolve_master(out);
    out.agent_store = chosen == &kPlain && text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    return out;
  }

 private:
  std::string text(std::string_view name) const {
    const auto found = environment_.find(std::string(name));
    return found == environment_.end() ? "" : found->second;
  }
  std::string_view name_set(const Family::Names& names) const {
    return text(names.first).empty() ? names.second : names.first;
  }
  bool has(const Family::Names& names) const { return !text(name_set(names)).empty(); }

  [[noreturn]] void fail(const std::string& what) const {
    std::string found;
    for (const std::string_view name : kVariables) {
      if (const std::string value = text(name); !value.empty()) found += fmt::format(" {}={}", name, value);
    }
    throw ConfigError(
        fmt::format("cannot tell which rank this is: {}\n  the environment has:{}", what, found));
  }

  std::optional<int> number(std::string_view name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || *end != '\0')
      fail(fmt::format("{}={}: expected a whole number", name, value));
    return result;
  }

  int required(const Family::Names& names) const {
    if (!has(names)) fail(fmt::format("{} is not set; expected it beside the others", names.first));
    return *number(name_set(names));
  }

  /// A batch script has SLURM_PROCID=0 and the job's SLURM_NTASKS although no srun made it a rank.
  bool in_batch_script() const { return text("ENVIRONMENT") == "BATCH" && text("SLURM_STEP_ID").empty(); }

  bool from_torchrun(const Family& family) const {
    return &family == &kPlain && !text("TORCHELASTIC_RUN_ID").empty();
  }

  // torchrun and our own launcher are rightly nested in others. A RANK of nobody's, left over in a shell,
  // would make all ranks of mpirun or srun the same one.
  void reject_contradictions(const Family& chosen, const Rendezvous& out) const {
    if (&chosen != &kPlain || from_torchrun(chosen) || !text("ALIQUOT_LAUNCHER_PID").empty()) return;
    for (const Family* other : {&kOpenMpi, &kPmi, &kSlurm}) {
      if (other == &kSlurm && in_batch_script()) continue;
      const auto rank = number(name_set(other->rank)), world = number(name_set(other->world));
      if (!rank || !world || (*rank == out.rank && *world == out.world)) continue;
      fail(fmt::format("RANK says {} of {}, but {} says {} of {}; unset the one that is not meant", out.rank,
                       out.world, other->source, *rank, *world));
    }
  }

  void resolve_local(const Family& family, Rendezvous& out) const {
    const std::optional<int> rank = number(name_set(family.local_rank));
    std::optional<int> world = number(name_set(family.local_world));
    if (!world) world = slurm_local_world(out.world);
    if (!world && is_all_local(family, out, rank)) world = out.world;
    if (!world && &family == &kPlain && !rank && !text("MASTER_ADDR").empty()) world = 1;
    if (!world) {
      fail(fmt::format("how many ranks this host has is not said; expected {}",
                       &family == &kSlurm ? "SLURM_TASKS_PER_NODE" : family.local_world.first));
    }
    out.local_world = *world;
    if (!rank && out.local_world != 1 && out.local_world != out.world) {
      fail(fmt::format("{} is not set; expected it beside {}", family.local_rank.first,
                       family.local_world.first));
    }
    out.local_rank = rank ? *rank : out.local_world == 1 ? 0 : out.rank;
    if (out.local_world < 1 || out.local_world > out.world || out.local_rank < 0 ||
        out.local_rank >= out.local_world) {
      fail(fmt::format("local rank {} of {} in a world of {} ranks", out.local_rank, out.local_world,
                       out.world));
    }
  }

  /// Where nothing counts the ranks of this host: whether they are all of the world.
  bool is_all_local(const Family& family, const Rendezvous& out, std::optional<int> local_rank) const {
    if (out.world == 1 || is_loopback(text("MASTER_ADDR"))) return true;
    // srun names its nodes; without them its variables were set by hand.
    return &family == &kSlurm && local_rank == out.rank && text("SLURM_JOB_NODELIST").empty();
  }

  std::optional<int> slurm_local_world(int world) const {
    if (text("SLURM_PROCID").empty() || in_batch_script()) return std::nullopt;
    const int node = number("SLURM_NODEID").value_or(0);
    for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
      const std::optional<int> tasks = tasks_of_node(text(name), node);
      // The job's line does not describe a smaller step.
      if (tasks && *tasks <= world) return tasks;
    }
    return std::nullopt;
  }

  void resolve_master(Rendezvous& out) const {
    out.master_addr = text("MASTER_ADDR");
    if (out.master_addr.empty() && out.local_world == out.world) out.master_addr = "127.0.0.1";
    for (const char* nodes : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      if (out.master_addr.empty()) out.master_addr = first_host(text(nodes));
    }
    if (out.master_addr.empty()) {
      fail(
          "the ranks are on several hosts and MASTER_ADDR, the host of rank 0, is not set; for example "
          "mpirun -x MASTER_ADDR=node1 ...");
    }
    const std::optional<int> port = number("MASTER_PORT");
    if (port && (*port < 1 || *port > 65535)) fail("MASTER_PORT: expected 1 to 65535");
    out.master_port = port ? *port : out.world == 1 ? 0 : port_of_job();
  }

  /// The same on every rank of a job, and most likely another for another job or user. FNV-1a.
  int port_of_job() const {
    std::string job = fmt::format("{}", getuid());
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
      job += '/' + text(name);
    }
    uint64_t hash = 14695981039346656037U;
    for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return kFirstPort + static_cast<int>(hash % kPorts);
  }

  const Environment& environment_;
};

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Rendezvous rendezvous_from(const Environment& environment) {
  return Resolver(environment).resolve();
}

bool is_launched(const Environment& environment) {
  return Resolver(environment).family() != nullptr;
}

std::string thread_advice(const Environment& environment, const Rendezvous& rendezvous, int cores) {
  const auto threads = environment.find("OMP_NUM_THREADS");
  const int share = cores / rendezvous.local_world;
  if (rendezvous.source != "torchrun" || threads == environment.end() || threads->second != "1" || share < 2)
    return "";
  return fmt::format(
      "torchrun set OMP_NUM_THREADS=1, so each rank uses 1 thread although its share of {} cores is {}; give "
      "--threads {} or set OMP_NUM_THREADS={} to use them",
      cores, share, share, share);
}

}  // namespace aliquot
