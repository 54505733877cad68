#include "aliquot/cli/train_rank.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <chrono>

#include "aliquot/cli/matmul_limit.h"
#include "aliquot/cli/stop_signal.h"
#include "aliquot/cli/training_run.h"
#include "aliquot/cli/training_view.h"
#include "aliquot/comm/comm.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One optimizer step: its micro-steps, then the update. Returns the milliseconds of forward.
double train_step(TrainingRun& run, int64_t step) {
  Engine& engine = *run.engine;
  double forward_ms = 0;
  for (int64_t j = 0; j < engine.gradient_accumulation_steps(); ++j) {
    run.sampler->fill(step, run.slice(j), run.ids_span(), run.targets_span());
    const auto start = Clock::now();
    const at::Tensor loss = run.model->loss(run.ids, run.targets);
    forward_ms += ms_since(start);
    engine.backward(loss);
    engine.step();
  }
  return forward_ms;
}

bool evaluates_after(const TrainingRun& run, int64_t step, bool last) {
  if (run.sampler->eval_windows() == 0) return false;
  const int64_t every = run.options.eval_every;
  return last || (every > 0 && step % every == 0);
}

// All ranks at once, as in training: they share the machine's cores and memory.
double measure_limit(const TrainingRun& run) {
  run.comm.barrier("measure the matmul limit");
  const double own = matmul_flops_per_s(run.engine->config().param_dtype());
  std::vector<double> all(static_cast<size_t>(run.comm.size()));
  run.comm.all_gather(&own, all.data(), sizeof(own), "measure the matmul limit");
  double sum = 0;
  for (const double rate : all) sum += rate;
  return sum;
}

void train(TrainingRun& run, TrainingView* view) {
  Engine& engine = *run.engine;
  engine.train();
  double limit = 0;
  for (int64_t step = 0; step < run.options.steps; ++step) {
    if (stop_requested()) engine.request_stop();
    engine.meter().reset_peaks();
    const auto start = Clock::now();
    const double forward_ms = train_step(run, step);
    const double total_ms = ms_since(start);
    if (step == 0) limit = measure_limit(run);
    const bool last = step + 1 == run.options.steps || engine.last_step().stop;
    std::optional<double> eval_loss;
    if (evaluates_after(run, step + 1, last)) eval_loss = run.evaluate();
    if (view != nullptr) view->step(engine, {forward_ms, total_ms, limit, eval_loss});
    if (engine.last_step().stop) break;
  }
}

void run_rank(const TrainOptions& options, const Comm& comm) {
  const auto start = Clock::now();
  TrainingRun run(options, comm);
  std::unique_ptr<TrainingView> view;
  if (comm.rank() == 0) view = std::make_unique<TrainingView>(run);
  try {
    train(run, view.get());
    const bool interrupted = run.engine->last_step().stop;
    if (view) view->end_of_training();
    run.save_model(view ? view->folder() / "model" : std::filesystem::path());
    if (view) view->finish(interrupted ? "interrupted" : "finished", "", ms_since(start) / 1000);
  } catch (const std::exception& e) {
    if (view) view->finish("failed", e.what(), ms_since(start) / 1000);
    throw;
  }
}

}  // namespace

void train_rank(const TrainOptions& options, const Rendezvous& rendezvous) {
  const Comm comm = Comm::connect(
      rendezvous, {.backend = options.backend,
                   .timeout = std::chrono::milliseconds(static_cast<int64_t>(options.comm_timeout * 1000))});
  try {
    run_rank(options, comm);
  } catch (const CommError&) {
    throw;  // a peer's failure: that peer has said its own
  } catch (const std::exception& e) {
    comm.abort(e.what());
    throw;
  }
}

}  // namespace aliquot
