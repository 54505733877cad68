#include "aliquot/config/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "aliquot/error.h"

namespace aliquot {
namespace {

// a·b, or nothing if it does not fit.
std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
}

std::optional<int64_t> product(int64_t a, int64_t b, int64_t c) {
  const auto ab = product(a, b);
  return ab ? product(*ab, c) : std::nullopt;
}

struct Candidate {
  Batch batch;
  int changes = 0;       // given sizes that differ
  int64_t distance = 0;  // of the train batch size
};

class Neighbours {
 public:
  Neighbours(const BatchRequest& request, const Batch& wanted) : request_(request), wanted_(wanted) {}

  // At most two, the nearest first: fewest given sizes changed, then the nearest train batch size.
  std::vector<Batch> find() {
    const int64_t world = request_.world;
    const int64_t micro = std::max<int64_t>(wanted_.micro, 1);
    const int64_t accumulation = std::max<int64_t>(wanted_.accumulation, 1);
    // The sizes as they are, with the train batch size they make.
    add(micro, accumulation);
    // Keep the micro-batch, or the accumulation: whole numbers of the other around the train batch size.
    for (const auto step : {product(micro, world), product(accumulation, world)}) {
      if (!step) continue;
      const bool keep_micro = *step == product(micro, world);
      for (const int64_t n : {wanted_.train / *step, wanted_.train / *step + 1}) {
        keep_micro ? add(micro, n) : add(n, accumulation);
      }
    }
    // Keep the train batch size, if the ranks divide it: the largest micro-batch not above the wanted one.
    if (wanted_.train % world == 0) {
      const int64_t per_rank = wanted_.train / world;
      for (int64_t m = std::min(micro, per_rank), tries = 0; m > 0 && tries < kTries; --m, ++tries) {
        if (per_rank % m == 0) {
          add(m, per_rank / m);
          break;
        }
      }
    }
    std::ranges::stable_sort(found_, {},
                             [](const Candidate& c) { return std::tuple(c.changes, c.distance); });
    std::vector<Batch> out;
    for (const Candidate& c : found_) {
      if (out.size() < 2 && std::ranges::find(out, c.batch) == out.end()) out.push_back(c.batch);
    }
    return out;
  }

 private:
  static constexpr int64_t kTries = 1'000'000;  // a divisor is near, or the suggestion is left out

  void add(int64_t micro, int64_t accumulation) {
    const auto train = product(micro, accumulation, request_.world);
    if (!train || *train < 1) return;
    Candidate c{.batch = {*train, micro, accumulation}};
    const auto count = [&](const std::optional<BatchSize>& given, int64_t value) {
      if (given && given->value != value) ++c.changes;
    };
    count(request_.train, *train);
    count(request_.micro, micro);
    count(request_.accumulation, accumulation);
    c.distance = std::abs(*train - wanted_.train);
    found_.push_back(c);
  }

  const BatchRequest& request_;
  const Batch wanted_;
  std::vector<Candidate> found_;
};

std::string line(const char* name, const BatchSize& size) {
  return fmt::format("\n    {:<32}{:>8}   {}", name, size.value, size.source);
}

[[noreturn]] void refuse(const BatchRequest& request, const BatchAnswer& a) {
  std::string message =
      fmt::format("{} != {} × {} × {}: train_batch_size is not micro-batch × accumulation × world",
                  a.train.value, a.micro.value, a.accumulation.value, request.world);
  message += line("train_batch_size", a.train) + line("train_micro_batch_size_per_gpu", a.micro) +
             line("gradient_accumulation_steps", a.accumulation) +
             line("world size", {request.world, "ranks of this run"});
  std::vector<std::string> near;
  for (const Batch& b : Neighbours(request, a.sizes()).find()) {
    near.push_back(fmt::format("{} = {} × {} × {}", b.train, b.micro, b.accumulation, request.world));
  }
  if (!near.empty()) message += fmt::format("\n    nearest that hold: {}", fmt::join(near, ", or "));
  throw ConfigError(message);
}

BatchSize derived(int64_t value, const std::string& how) {
  return {value, "derived: " + how};
}

BatchSize multiplied(const BatchSize& micro, const BatchSize& accumulation, int64_t world) {
  const auto train = product(micro.value, accumulation.value, world);
  if (!train) {
    throw ConfigError(fmt::format("micro-batch {} × accumulation {} × world {} does not fit 64 bits",
                                  micro.value, accumulation.value, world));
  }
  return derived(*train, fmt::format("{} × {} × {}", micro.value, accumulation.value, world));
}

}  // namespace

BatchAnswer resolve_batch(const BatchRequest& request) {
  const auto& [train, micro, accumulation, world] = request;
  if (world < 1) throw ConfigError(fmt::format("the world must have at least one rank, got {}", world));
  for (const auto& size : {train, micro, accumulation}) {
    if (size && size->value < 1) {
      throw ConfigError(
          fmt::format("a batch size must be at least 1, got {} ({})", size->value, size->source));
    }
  }
  if (!train && !micro) {
    throw ConfigError("either train_batch_size or train_micro_batch_size_per_gpu is needed");
  }
  BatchAnswer a;
  const BatchSize one{1, "default"};
  if (!train) {
    a.micro = *micro;
    a.accumulation = accumulation.value_or(one);
    a.train = multiplied(a.micro, a.accumulation, world);
    return a;
  }
  a.train = *train;
  if (micro) {
    a.micro = *micro;
    a.accumulation = accumulation
                         ? *accumulation
                         : derived(train->value / micro->value / world,
                                   fmt::format("{} / {} / {}, whole", train->value, micro->value, world));
  } else {
    a.accumulation = accumulation.value_or(one);
    a.micro = derived(train->value / world / a.accumulation.value,
                      fmt::format("{} / {} / {}, whole", train->value, world, a.accumulation.value));
  }
  if (product(a.micro.value, a.accumulation.value, world) != a.train.value || a.micro.value < 1) {
    refuse(request, a);
  }
  return a;
}

}  // namespace aliquot
