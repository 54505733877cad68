#include "aliquot/cli/training_view.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>

#include "aliquot/config/print.h"
#include "aliquot/layout/placement.h"
#include "aliquot/observe/append_file.h"
#include "aliquot/observe/curves.h"
#include "aliquot/observe/human.h"
#include "aliquot/observe/limits.h"

namespace aliquot {
namespace {

std::filesystem::path prepared(const std::string& folder) {
  prepare_output_folder(folder);
  return folder;
}

ProgressOptions progress_options(const TrainingRun& run) {
  ProgressOptions options;
  options.total_steps = run.options.steps;
  options.steps_per_print =
      run.options.log_every > 0 ? run.options.log_every : run.resolution.config.steps_per_print.value_or(0);
  return options;
}

std::string optimizer_line(const Config& c) {
  const OptimizerConfig& o = *c.optimizer;
  return fmt::format("{} lr {:g}, weight decay {:g}, clip {:g}{}", o.type, o.lr, o.weight_decay,
                     c.gradient_clipping,
                     c.scheduler.kind == SchedulerKind::none ? "" : ", " + c.scheduler.type);
}

const char* spread(Spread s) {
  return s == Spread::sharded ? "sharded" : "replicated";
}

}  // namespace

TrainingView::TrainingView(const TrainingRun& run)
    : run_(run),
      folder_(prepared(output_folder(run.options))),
      metrics_(folder_),
      monitors_(make_monitors(run.resolution.config)),
      progress_(progress_options(run)),
      flops_per_token_(flops_per_token(parameter_count(run.model_config), run.model_config.layers,
                                       run.model_config.hidden, run.seq_len)) {
  replace_file(folder_ / "config.json", resolved_json(run.resolution.config));
  print_summary();
}

void TrainingView::print_summary() const {
  const Config& c = run_.resolution.config;
  const ModelConfig& m = run_.model_config;
  const Placement placement = Placement::of_stage(c.zero.stage);
  const Meter& meter = run_.engine->meter();
  fmt::print("model     {}: {} parameters, {} layers, hidden {}, vocabulary {}, context {}\n",
             run_.options.model, human_count(static_cast<double>(parameter_count(m))), m.layers, m.hidden,
             m.vocab_size, m.context);
  fmt::print("data      {}: {}; {} sequences of {} to train on, {} held out\n", run_.source->name(),
             run_.source->describe(), run_.sampler->train_windows(), run_.seq_len,
             run_.sampler->eval_windows());
  const int threads = at::get_num_threads();
  fmt::print("ranks     {} ({}), {} thread{} each\n", run_.comm.size(), run_.comm.backend(), threads,
             threads == 1 ? "" : "s");
  fmt::print("batch     {} = micro-batch {} x accumulation {} x ranks {}\n", c.train_batch_size,
             c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps, run_.comm.size());
  fmt::print("precision {}, gradients accumulated in {}\n", name_of(c.param_dtype()),
             name_of(c.grad_accum_dtype));
  fmt::print("optimizer {}\n", optimizer_line(c));
  fmt::print("ZeRO {}    params {}, grads {}, optimizer {}\n", c.zero.stage, spread(placement.params),
             spread(placement.grads), spread(placement.optimizer));
  std::string memory;
  for (const Kind kind : {Kind::params, Kind::grads, Kind::master, Kind::moments, Kind::buckets}) {
    memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", name_of(kind),
                          human_bytes(meter.current(kind, Place::host)));
  }
  fmt::print("memory    per rank: {}\n", memory);
  fmt::print("output    {}\n", folder_.string());
  fmt::print("{}{}", auto_table(run_.resolution), notes_text(run_.resolution));
  std::fflush(stdout);
}

StepRecord TrainingView::record_of(const Engine& engine, const StepFacts& facts) {
  const StepReport& r = engine.last_step();
  const int64_t step_tokens = engine.config().train_batch_size * run_.seq_len;
  tokens_ += step_tokens;
  StepRecord record;
  record.step = r.step;
  record.samples = engine.global_samples();
  record.tokens = tokens_;
  record.loss = r.loss;
  record.eval_loss = facts.eval_loss;
  record.lr = r.lr;
  record.grad_norm = r.grad_norm;
  record.clip_coefficient = r.clip_coefficient;
  record.loss_scale = r.loss_scale;
  record.skipped = !r.applied;
  record.skip_reason = r.skip_reason;
  record.tokens_per_s = static_cast<double>(step_tokens) / facts.total_ms * 1000;
  record.matmul_percent = percent_of_limit(flops_per_token_, record.tokens_per_s, facts.limit_flops_per_s);
  record.ms = {{"forward", facts.forward_ms}, {"backward", r.backward_ms}, {"gather", r.gather_ms},
               {"reduce", r.reduce_ms},       {"norm", r.norm_ms},         {"update", r.update_ms},
               {"publish", r.publish_ms},     {"total", facts.total_ms}};
  record.memory = read_memory(engine.meter());
  for (const auto& [op, count] : engine.comm().traffic(/*reset=*/true).by_op) record.bytes[op] = count.bytes;
  record.bytes["reduce"] = r.reduce_bytes;
  return record;
}

void TrainingView::step(const Engine& engine, const StepFacts& facts) {
  const StepRecord record = record_of(engine, facts);
  metrics_.write(record);
  const std::vector<MonitorEvent> events = monitor_events(record, engine.config());
  for (const auto& monitor : monitors_) monitor->write(events);
  progress_.update(record);
}

void TrainingView::finish(const std::string& status, const std::string& error, double seconds) {
  progress_.finish();
  const Config& c = run_.resolution.config;
  RunSummary summary;
  summary.status = status;
  summary.error = error;
  summary.model = run_.options.model;
  summary.dtype = name_of(c.param_dtype());
  summary.parameters = parameter_count(run_.model_config);
  summary.world = run_.comm.size();
  summary.zero_stage = c.zero.stage;
  summary.seq_len = run_.seq_len;
  summary.train_batch_size = c.train_batch_size;
  summary.seed = run_.options.seed;
  summary.seconds = seconds;
  summary = metrics_.finish(summary);
  write_report(folder_, summary);
  if (status == "failed") return;
  fmt::print("{} after {} steps in {}: loss {:.4f}", status, summary.steps, human_duration(seconds),
             summary.loss.value_or(std::nan("")));
  if (summary.eval_loss) fmt::print(", held-out {:.4f}", *summary.eval_loss);
  if (summary.skipped_steps > 0) fmt::print(", {} skipped", summary.skipped_steps);
  fmt::print("\nsee {}: model/, metrics.jsonl, summary.json, report.html\n", folder_.string());
  std::fflush(stdout);
}

}  // namespace aliquot
