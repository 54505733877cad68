#include "aliquot/config/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>

#include "aliquot/config/batch.h"
#include "aliquot/config/coerce.h"
#include "aliquot/config/print.h"
#include "aliquot/config/rules.h"

namespace aliquot {
namespace {

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr const char* kCommandLine = "command line";

class Resolver {
 public:
  Resolver(const LoadedConfig& loaded, const RunFacts& facts)
      : loaded_(loaded), facts_(facts), findings_(loaded.findings) {
    out_.config = loaded.draft;
  }

  Resolution resolve() {
    if (facts_.world_size < 1) {
      findings_.error({}, "", fmt::format("world size {}; expected at least 1", facts_.world_size));
    }
    batch();
    precision();
    hyperparameters();
    scheduler();
    bucket_sizes();
    overlap();
    activation_checkpointing();
    remaining_autos();
    check_rules(out_.config, loaded_,
                {.host_is_device = facts_.host_is_device, .param_groups = facts_.param_groups}, findings_);
    findings_.throw_errors();
    sort_autos();
    out_.warnings = findings_.warnings();
    out_.notes = findings_.notes();
    return std::move(out_);
  }

 private:
  bool is_open(const std::string& path) const { return loaded_.open.contains(path); }
  const Given* given(const std::string& path) const {
    const auto found = loaded_.given.find(path);
    return found == loaded_.given.end() ? nullptr : &found->second;
  }

  template <class T>
  void tell(const std::string& path, const T& value, const std::string& rule) {
    settled_.push_back(path);
    out_.autos.push_back({path, fmt::format("{}", value), rule});
  }

  // `field` takes the run's value where the file leaves it open or says nothing; two different values are a
  // conflict.
  template <class T>
  void supply(const std::string& path, T& field, const std::optional<T>& fact) {
    if (!fact) return;
    const schema::Key* key = schema::key_at(path);
    if (!key->range.contains(static_cast<double>(*fact))) {
      return findings_.error(
          {}, path, fmt::format("{} on the command line: expected {}", *fact, schema::type_name(*key)));
    }
    const Given* g = given(path);
    if (g == nullptr) {
      field = *fact;
      tell(path, *fact, kCommandLine);
    } else if (field != *fact && !findings_.failed(path)) {
      findings_.error(g->at, path,
                      fmt::format("{} here, but {} on the command line; give it in one place", field, *fact));
    }
  }

  // ---- batch sizes ----

  std::optional<BatchSize> batch_size(const char* path, int64_t& field, const std::optional<int64_t>& fact) {
    supply(path, field, fact);
    if (const Given* g = given(path)) return BatchSize{field, findings_.place(g->at)};
    if (fact) return BatchSize{field, kCommandLine};
    return std::nullopt;
  }

  void batch() {
    Config& c = out_.config;
    BatchRequest request{
        .train = batch_size(kTrain, c.train_batch_size, facts_.train_batch),
        .micro = batch_size(kMicro, c.train_micro_batch_size_per_gpu, facts_.micro_batch),
        .accumulation = batch_size(kAccumulation, c.gradient_accumulation_steps, facts_.accumulation),
        .world = facts_.world_size};
    for (const char* path : {kTrain, kMicro, kAccumulation}) {
      if (findings_.failed(path)) return;
    }
    if (facts_.world_size < 1) return;
    if (!request.train && !request.micro && (is_open(kTrain) || is_open(kMicro))) {
      request.micro =
          BatchSize{1, "\"auto\": the smallest; give a micro-batch on the command line for another"};
    }
    try {
      const BatchAnswer answer = resolve_batch(request);
      take(kTrain, c.train_batch_size, answer.train);
      take(kMicro, c.train_micro_batch_size_per_gpu, answer.micro);
      take(kAccumulation, c.gradient_accumulation_steps, answer.accumulation);
    } catch (const ConfigError& e) {
      findings_.error(first_batch_place(), "", e.what());
    }
  }

  void take(const char* path, int64_t& field, const BatchSize& size) {
    field = size.value;
    const bool told = std::ranges::find(settled_, path) != settled_.end();
    if (given(path) == nullptr && !told) tell(path, size.value, size.source);
  }

  json::Position first_batch_place() const {
    for (const char* path : {kTrain, kMicro, kAccumulation}) {
      if (const Given* g = given(path)) return g->at;
    }
    return {};
  }

  // ---- autos ----

  void precision() {
    Config& c = out_.config;
    if (is_open("fp16.enabled")) {
      c.fp16.enabled = false;
      tell("fp16.enabled", false, "fp16 is on only where the file says so");
    }
    if (is_open("bf16.enabled")) {
      c.bf16.enabled = !c.fp16.enabled;
      tell("bf16.enabled", c.bf16.enabled, c.fp16.enabled ? "fp16 is on" : "bf16 wherever fp16 is not on");
    }
  }

  void hyperparameters() {
    Config& c = out_.config;
    supply("gradient_clipping", c.gradient_clipping, facts_.gradient_clipping);
    if (c.optimizer) {
      supply("optimizer.params.lr", c.optimizer->lr, facts_.lr);
      supply("optimizer.params.weight_decay", c.optimizer->weight_decay, facts_.weight_decay);
    } else if ((facts_.lr || facts_.weight_decay) && !findings_.failed("optimizer")) {
      findings_.error(
          {}, "optimizer",
          "missing, so the command line's lr and weight decay concern nothing; add an optimizer block");
    }
  }

  void scheduler() {
    SchedulerConfig& s = out_.config.scheduler;
    const std::string params = "scheduler.params.";
    if (is_open(params + "total_num_steps")) {
      if (facts_.total_steps && *facts_.total_steps >= 1) {
        s.total_num_steps = *facts_.total_steps;
        tell(params + "total_num_steps", s.total_num_steps, "steps of the run");
      } else {
        unresolved_.push_back(params + "total_num_steps");
      }
    }
    if (is_open(params + "warmup_num_steps")) warmup_steps(params + "warmup_num_steps");
    if (is_open(params + "warmup_max_lr")) {
      const std::string lr =
          out_.config.optimizer ? fmt::format("{}", out_.config.optimizer->lr) : "each group's lr";
      tell(params + "warmup_max_lr", lr, "the optimizer's lr, of each parameter group its own");
    }
  }

  void warmup_steps(const std::string& path) {
    SchedulerConfig& s = out_.config.scheduler;
    const int64_t total = facts_.total_steps.value_or(s.total_num_steps);
    if (facts_.warmup_steps && *facts_.warmup_steps >= 1) {
      s.warmup_num_steps = *facts_.warmup_steps;
      tell(path, s.warmup_num_steps, kCommandLine);
    } else if (total > 0) {
      s.warmup_num_steps = std::clamp<int64_t>(total / 10, 1, 1000);
      tell(path, s.warmup_num_steps, fmt::format("a tenth of {} steps, at most 1000", total));
    } else {
      tell(path, s.warmup_num_steps, "default; how long the run is, is not known");
    }
  }

  // Hugging Face's rules for these three.
  void bucket_sizes() {
    if (!facts_.hidden_size || *facts_.hidden_size < 1) return;
    ZeroConfig& z = out_.config.zero;
    const int64_t h = std::min<int64_t>(*facts_.hidden_size, int64_t{1} << 30);  // whose square fits
    const std::string zero = "zero_optimization.";
    const auto size = [&](const std::string& name, int64_t& field, int64_t value, const char* rule) {
      if (!is_open(zero + name)) return;
      field = value;
      tell(zero + name, value, fmt::format("{}, hidden size {}", rule, h));
    };
    size("reduce_bucket_size", z.reduce_bucket_size, h * h, "hidden²");
    size("stage3_prefetch_bucket_size", z.stage3_prefetch_bucket_size,
         static_cast<int64_t>(0.9 * static_cast<double>(h) * static_cast<double>(h)), "0.9 · hidden²");
    size("stage3_param_persistence_threshold", z.stage3_param_persistence_threshold, 10 * h, "10 · hidden");
  }

  void overlap() {
    ZeroConfig& z = out_.config.zero;
    if (given("zero_optimization.overlap_comm") == nullptr) z.overlap_comm = z.stage == 3;
    if (is_open("zero_optimization.overlap_comm")) {
      tell("zero_optimization.overlap_comm", z.overlap_comm, "true at stage 3 only");
    }
  }

  void activation_checkpointing() {
    bool& enabled = out_.config.activation_checkpointing.enabled;
    if (!facts_.activation_checkpointing || enabled) return;
    enabled = true;
    tell("activation_checkpointing", "on", kCommandLine);
  }

  // Every other "auto" is the default, as DeepSpeed takes it where it knows it.
  void remaining_autos() {
    for (const auto& [path, at] : loaded_.open) {
      if (std::ranges::find(unresolved_, path) != unresolved_.end()) continue;
      if (std::ranges::find(settled_, path) != settled_.end()) continue;
      tell(path, value_text(out_.config, path), "the default");
    }
    if (unresolved_.empty()) return;
    findings_.error(
        loaded_.open.at(unresolved_.front()), "",
        fmt::format("\"auto\" cannot be resolved for {}; give a number, or the steps of the run (--steps)",
                    fmt::join(unresolved_, ", ")));
  }

  // In the file's order; what the file does not name comes last.
  void sort_autos() {
    const auto order = [&](const AutoValue& a) {
      const auto open = loaded_.open.find(a.path);
      return open == loaded_.open.end() ? std::pair(INT_MAX, INT_MAX)
                                        : std::pair(open->second.line, open->second.column);
    };
    std::ranges::stable_sort(out_.autos, {}, order);
  }

  const LoadedConfig& loaded_;
  const RunFacts& facts_;
  Findings findings_;
  Resolution out_;
  std::vector<std::string> settled_;     // autos that have their value
  std::vector<std::string> unresolved_;  // autos that nothing resolves
};

}  // namespace

Resolution resolve_config(const LoadedConfig& loaded, const RunFacts& facts) {
  return Resolver(loaded, facts).resolve();
}

Config checked(const Config& config, int world_size) {
  return resolve_config(parse_config(resolved_json(config), "configuration"), {.world_size = world_size})
      .config;
}

}  // namespace aliquot
