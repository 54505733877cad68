#include "aliquot/cli/room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "aliquot/optim/optimizer.h"

namespace aliquot {
namespace {

double gib(double bytes) {
  return bytes / (1 << 30);
}

bool on_nvme(const OffloadConfig& part) {
  return part.device == OffloadDevice::nvme;
}

std::vector<std::string> savings(const Config& c, int ranks) {
  std::vector<std::string> out;
  if (c.param_dtype() == DType::fp32) out.emplace_back("bf16");
  if (ranks > 1 && c.zero.stage < 2) out.emplace_back("ZeRO stage 2");
  if (!on_nvme(c.zero.offload_optimizer)) out.emplace_back("offload_optimizer to nvme");
  if (c.zero.stage < 3) out.emplace_back("ZeRO stage 3");
  if (!on_nvme(c.zero.offload_param)) out.emplace_back("offload_param to nvme with max_in_cpu 0 (stage 3)");
  if (c.grad_accum_dtype == DType::fp32) out.emplace_back("data_types.grad_accum_dtype bf16");
  if (!c.bf16.optimizer_states) out.emplace_back("bf16_optimizer_states");
  out.emplace_back("more hosts, or a smaller model");
  return out;
}

}  // namespace

HostStates host_states(const Config& config, int64_t parameters, int ranks) {
  const auto n = static_cast<double>(parameters);
  const int stage = config.zero.stage;
  // Sharded states are there once, replicated ones in every rank.
  const auto copies = [&](int sharded_from) { return stage >= sharded_from ? 1.0 : ranks; };
  const double size = static_cast<double>(size_of(config.param_dtype()));
  HostStates states;
  states.params = n * size * copies(3);
  if (stage == 3 && on_nvme(config.zero.offload_param)) {
    states.params =
        std::min(states.params, static_cast<double>(config.zero.offload_param.max_in_cpu) * ranks * size);
  }
  states.grads = n * static_cast<double>(size_of(config.grad_accum_dtype)) * copies(2);
  const double in_memory =
      on_nvme(config.zero.offload_optimizer) ? 1 - config.zero.offload_optimizer.ratio : 1;
  const int moments = config.optimizer ? moment_count(*config.optimizer) : 0;
  states.master = config.param_dtype() == DType::fp32 ? 0 : n * 4 * copies(1) * in_memory;
  states.moments = n * (config.bf16.optimizer_states ? 2 : 4) * moments * copies(1) * in_memory;
  return states;
}

std::string room_problem(const std::string& model, const Config& config, int64_t parameters, int ranks,
                         int64_t available) {
  const HostStates s = host_states(config, parameters, ranks);
  if (s.total() < static_cast<double>(available)) return "";
  return fmt::format(
      "{} does not fit: its states need {:.1f} GiB of memory on this host (params {:.1f}, grads {:.1f}, "
      "master {:.1f}, "
      "moments {:.1f}; {} rank{}, before activations) and {:.1f} GiB are available. What would need less, in "
      "the order "
      "to try: {}",
      model, gib(s.total()), gib(s.params), gib(s.grads), gib(s.master), gib(s.moments), ranks,
      ranks == 1 ? "" : "s", gib(static_cast<double>(available)), fmt::join(savings(config, ranks), "; "));
}

}  // namespace aliquot
