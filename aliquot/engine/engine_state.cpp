// Building an engine: adopt the parameters, lay them out, fill the store with rank 0's values, make the
// parts.
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "aliquot/engine/offload.h"
#include "aliquot/engine/state.h"
#include "aliquot/engine/unfilled.h"
#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/optim/optimizer.h"

namespace aliquot {

EngineState::EngineState(std::vector<NamedTensor> named, const Config& config_, Comm comm_,
                         EngineOptions options_)
    : config(config_),
      comm(std::move(comm_)),
      options(std::move(options_)),
      placement(Placement::of_stage(config_.zero.stage)),
      buffers(std::move(options.buffers)),
      accumulation_steps(std::max<int64_t>(config_.gradient_accumulation_steps, 1)) {
  if (!config.optimizer) {
    throw ConfigError(
        "the engine needs an optimizer: add an \"optimizer\" block, for example "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}}");
  }
  build(std::move(named));
}

EngineState::~EngineState() {
  hooks.reset();    // no delivery from here on
  reducer.reset();  // its thread ends
}

void EngineState::build(std::vector<NamedTensor> named) {
  parameters = adopt_parameters(named, options.groups, config);
  named.clear();
  for (size_t i = 0; i < parameters.names.size(); ++i)
    index.emplace(parameters.names[i], static_cast<int>(i));
  for (const auto& [name, param] : parameters.aliases) index.emplace(name, param);
  layout = std::make_shared<const Layout>(parameters.specs, comm.size());
  check_same_model();

  const Offload offload(config, layout, comm, meter);
  auto store = offload.make_unit_store(placement.params);
  UnitStore& filled = *store;
  {
    // The tensors still own their memory: copy it in before the pager takes their storages.
    Buffer scratch;
    for (int u = 0; u < static_cast<int>(layout->units().size()); ++u) {
      const Unit& unit = layout->unit(u);
      std::byte* whole = filled.whole(u);
      if (whole == nullptr) {
        if (scratch.bytes() < layout->unit_bytes(u)) {
          scratch = Buffer();
          scratch = Buffer(meter, Kind::staging, layout->unit_bytes(u));
        }
        whole = scratch.data();
        if (whole != nullptr) std::memset(whole, 0, static_cast<size_t>(layout->unit_bytes(u)));
      }
      for (const Segment& segment : unit.segments) {
        if (segment.numel == 0) continue;
        const at::Tensor t = initial_value(segment.param);
        if (!t.defined()) continue;
        std::memcpy(whole + segment.offset * size_of(unit.dtype), t.const_data_ptr(),
                    static_cast<size_t>(segment.numel * size_of(unit.dtype)));
      }
      comm.broadcast(whole, static_cast<size_t>(layout->unit_bytes(u)), 0,
                     fmt::format("initial values of unit {}", u));
      if (filled.whole(u) == nullptr) {
        filled.write_slice(
            u, 0,
            {whole + layout->slice_bytes(u) * comm.rank(), static_cast<size_t>(layout->slice_bytes(u))});
      }
    }
  }
  comm.barrier("initial values");

  const ZeroConfig& zero = config.zero;
  pager = Pager::create(layout, parameters.tensors, parameters.names, std::move(store),
                        {.max_live = zero.stage3_max_live_parameters,
                         .max_reuse_distance = zero.stage3_max_reuse_distance,
                         .persistence_threshold = zero.stage3_param_persistence_threshold,
                         .model_persistence_threshold = zero.stage3_model_persistence_threshold},
                        comm.rank());
  const MomentShape moments{moment_count(*config.optimizer),
                            config.bf16.optimizer_states ? DType::bf16 : DType::fp32};
  auto states = std::make_unique<OptimizerStates>(layout, placement, moments, filled,
                                                  offload.state_places(filled), comm.rank(), meter);
  updater = std::make_unique<Updater>(layout, placement, *config.optimizer, parameters.specs,
                                      std::move(states), comm.rank());
  // A gather that all ranks must enter cannot wait behind a reduction that they must enter too: that one gets
  // a thread.
  const bool overlap = zero.overlap_comm || filled.gathers_collectively();
  reducer = std::make_unique<Reducer>(
      layout, placement, config.grad_accum_dtype, comm,
      ReducerOptions{.bucket_numel = zero.reduce_bucket_size,
                     .overlap = overlap,
                     .communication_dtype = config.communication_data_type,
                     .predivide = config.prescale_gradients ? comm.size() : config.gradient_predivide_factor},
      meter, parameters.names);
  scaler = std::make_unique<LossScaler>(config.fp16);
  schedule = std::make_unique<Schedule>(make_schedule());
  hooks = std::make_unique<GradientHooks>(
      parameters.tensors, parameters.names,
      [this](int param, at::Tensor grad) { reducer->deliver(param, std::move(grad)); });
}

/// Undefined where rank 0's broadcast will bring it.
at::Tensor EngineState::initial_value(int param) const {
  const at::Tensor& t = parameters.tensors[static_cast<size_t>(param)];
  if (!is_unfilled(t)) return t;
  const std::string& name = parameters.names[static_cast<size_t>(param)];
  if (!options.fill)
    throw UsageError(fmt::format("parameter {} has no memory and EngineOptions::fill is not set", name));
  if (comm.rank() != 0) return {};
  const c10::AutoGradMode no_grad(false);
  at::Tensor value = at::empty(t.sizes(), at::kFloat);
  options.fill(name, value);
  return value.to(t.scalar_type());
}

Schedule EngineState::make_schedule() const {
  std::vector<Schedule::Group> groups;
  for (const GroupHyper& group : base_hypers()) groups.push_back({group.lr, group.beta1, group.beta2});
  return {config.scheduler, std::move(groups), has_betas(config.optimizer->kind)};
}

// Ranks with different models would exchange garbage.
void EngineState::check_same_model() const {
  std::string text;
  for (const ParamSpec& p : parameters.specs) {
    text +=
        fmt::format("{}:{}:{}:{}:{}:{};", p.name, p.numel, p.ndim, name_of(p.dtype), p.trainable, p.group);
  }
  text += buffers.description();
  const uint64_t mine = std::hash<std::string>{}(text);
  std::vector<uint64_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof(mine), "compare models");
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] != mine) {
      throw UsageError(fmt::format(
          "rank {} has another model than rank {}: names, shapes, dtypes, requires_grad, groups and "
          "buffers must be the same on every rank",
          comm.rank(), r));
    }
  }
}

int EngineState::find(std::string_view name) const {
  const auto it = index.find(name);
  if (it == index.end()) throw UsageError(fmt::format("no parameter is called {}", name));
  return it->second;
}

void EngineState::require_usable() const {
  if (!usable) throw UsageError("this engine failed in communication and cannot go on; build another");
}

}  // namespace aliquot
