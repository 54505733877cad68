// The engine's parts. Private to this folder.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aliquot/engine/buffers.h"
#include "aliquot/engine/engine.h"
#include "aliquot/engine/hooks.h"
#include "aliquot/engine/updater.h"
#include "aliquot/optim/loss_scaler.h"
#include "aliquot/optim/schedule.h"
#include "aliquot/pager/pager.h"
#include "aliquot/reduce/norm.h"
#include "aliquot/reduce/reducer.h"

namespace aliquot {

struct EngineState {
  EngineState(std::vector<NamedTensor> named, const Config& config, Comm comm, EngineOptions options);
  ~EngineState();

  // Construction, in this order (engine_state.cpp).
  void build(std::vector<NamedTensor> named);
  void check_same_model() const;
  at::Tensor initial_value(int param) const;
  Schedule make_schedule() const;
  std::vector<GroupHyper> base_hypers() const;

  // Training (training.cpp).
  void backward(const at::Tensor& loss, const BackwardOptions& options);
  bool step();
  bool boundary_step();
  void drop_window();
  double gradient_factor() const;  // f of [Note: arithmetic] A1
  double clip_coefficient(double norm) const;
  bool skips(const Verdict& verdict) const;
  void apply(const Verdict& verdict, StepReport& report);
  void gather_sums();
  void count_nonfinite_losses(const Verdict& verdict);
  std::string describe_skip(const Verdict& verdict) const;
  std::vector<GroupHyper> hypers() const;
  void require_usable() const;
  void fail() { usable = false; }

  // Access (access.cpp, gathered_parameters.cpp).
  int find(std::string_view name) const;
  void write_param(int param, const at::Tensor& value);

  Config config;
  Comm comm;
  EngineOptions options;
  std::shared_ptr<Meter> meter = std::make_shared<Meter>();
  Placement placement;
  Parameters parameters;
  std::map<std::string, int, std::less<>> index;  // with aliases
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<Pager> pager;
  std::unique_ptr<Reducer> reducer;
  std::unique_ptr<Updater> updater;
  std::unique_ptr<LossScaler> scaler;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<GradientHooks> hooks;
  BufferSync buffers;

  // The accumulation window.
  int64_t accumulation_steps = 1;
  int64_t micro_steps = 0;
  std::optional<bool> boundary_override;
  bool backward_running = false;  // still true at the next call: that backward threw
  bool no_sync = false;
  std::optional<bool> scale_wrt_gas;
  double loss_sum = 0;
  int64_t losses = 0;
  double backward_ms = 0;

  // Since the start.
  int64_t global_steps = 0, skipped_steps = 0, global_samples = 0;
  int64_t nonfinite_losses = 0;  // boundaries in a row
  int64_t skip_messages = 0;
  StepReport last;
  bool usable = true;
  std::atomic<bool> stop_requested{false};
};

}  // namespace aliquot
