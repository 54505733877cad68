// What DeepSpeed 0.19.8 and PyTorch computed (tests/golden), and where we differ on purpose: each difference
// is a named case here and a line under "Differences from DeepSpeed" in docs/config.md.
#include "aliquot/error.h"
#include "aliquot/optim/loss_scaler.h"
#include "aliquot/optim/optimizer.h"
#include "aliquot/optim/schedule.h"
#include "testing.h"

namespace aliquot {
namespace {

using testing::golden;
using testing::Json;

std::vector<Json> records(const std::string& file, const std::string& kind) {
  std::vector<Json> found;
  const Json all = golden(file).at("records");
  for (const Json& r : all) {
    if (r.at("kind") == kind) found.push_back(r);
  }
  return found;
}

// ---- loss scale ----

Fp16Config fp16(const Json& j) {
  Fp16Config c;
  c.enabled = true;
  c.loss_scale = j.value("loss_scale", c.loss_scale);
  c.initial_scale_power = j.value("initial_scale_power", c.initial_scale_power);
  c.loss_scale_window = j.value("loss_scale_window", c.loss_scale_window);
  c.hysteresis = j.value("hysteresis", c.hysteresis);
  c.consecutive_hysteresis = j.value("consecutive_hysteresis", c.consecutive_hysteresis);
  c.min_loss_scale = j.value("min_loss_scale", c.min_loss_scale);
  return c;
}

// Where DeepSpeed ends the run at the minimum, the scale stays there and training goes on.
void expect_goes_on(LossScaler& scaler, const std::string& overflow, size_t from, const std::string& id) {
  const double minimum = scaler.scale();
  for (size_t k = from; k < overflow.size() && overflow[k] == '1'; ++k) {
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), minimum) << id << ", boundary " << k;
  }
}

TEST(Golden, LossScalePatterns) {
  size_t compared = 0;
  for (const Json& r : records("loss_scale.json", "pattern")) {
    const std::string id = r.at("id"), overflow = r.at("overflow");
    ++compared;
    if (r.contains("raises")) {
      EXPECT_THROW(LossScaler{fp16(r.at("fp16"))}, ConfigError) << id;
      continue;
    }
    LossScaler scaler(fp16(r.at("fp16")));
    EXPECT_EQ(scaler.scale(), r.at("initial").get<double>()) << id;
    const Json& scale = r.at("zero").at("scale");
    const Json& hysteresis = r.at("zero").at("hysteresis");
    for (size_t k = 0; k < scale.size(); ++k) {
      scaler.update(overflow[k] == '1');
      EXPECT_EQ(scaler.scale(), scale[k].get<double>()) << id << ", boundary " << k;
      if (!hysteresis[k].is_null()) {
        EXPECT_EQ(scaler.state().cur_hysteresis, hysteresis[k].get<int64_t>()) << id << ", boundary " << k;
      }
    }
    expect_goes_on(scaler, overflow, scale.size(), id);
  }
  EXPECT_EQ(compared, 22U);
}

// ---- schedules ----

std::vector<double> list(const Json& j, const char* key, std::vector<double> absent) {
  if (!j.contains(key) || j.at(key).is_null()) return absent;
  return j.at(key).is_array() ? j.at(key).get<std::vector<double>>() : std::vector{j.at(key).get<double>()};
}

SchedulerKind kind_of(const std::string& type) {
  if (type == "WarmupLR") return SchedulerKind::warmup;
  if (type == "WarmupDecayLR") return SchedulerKind::warmup_decay;
  if (type == "WarmupCosineLR") return SchedulerKind::warmup_cosine;
  return type == "OneCycle" ? SchedulerKind::one_cycle : SchedulerKind::lr_range_test;
}

SchedulerConfig scheduler(const Json& j) {
  const Json& p = j.at("params");
  SchedulerConfig c;
  c.kind = kind_of(j.at("type"));
  c.warmup_min_lr = list(p, "warmup_min_lr", {});
  // DeepSpeed's own peak where the key is absent; ours would be each group's rate.
  const bool peak = c.kind == SchedulerKind::warmup_decay && !p.contains("warmup_max_lr");
  c.warmup_max_lr = list(p, "warmup_max_lr", peak ? std::vector{1e-3} : std::vector<double>{});
  c.warmup_num_steps = p.value("warmup_num_steps", c.warmup_num_steps);
  c.warmup_type =
      p.value("warmup_type", "log") == std::string("linear") ? WarmupType::linear : WarmupType::log;
  c.total_num_steps = p.value("total_num_steps", c.total_num_steps);
  c.warmup_min_ratio = p.value("warmup_min_ratio", c.warmup_min_ratio);
  c.cos_min_ratio = p.value("cos_min_ratio", c.cos_min_ratio);
  c.cycle_min_lr = list(p, "cycle_min_lr", {});
  c.cycle_max_lr = list(p, "cycle_max_lr", {});
  c.decay_lr_rate = p.value("decay_lr_rate", c.decay_lr_rate);
  c.cycle_first_step_size = p.value("cycle_first_step_size", c.cycle_first_step_size);
  if (p.contains("cycle_second_step_size"))
    c.cycle_second_step_size = p.at("cycle_second_step_size").get<double>();
  c.cycle_first_stair_count = p.value("cycle_first_stair_count", c.cycle_first_stair_count);
  if (p.contains("cycle_second_stair_count"))
    c.cycle_second_stair_count = p.at("cycle_second_stair_count").get<int64_t>();
  c.decay_step_size = p.value("decay_step_size", c.decay_step_size);
  c.cycle_momentum = p.value("cycle_momentum", c.cycle_momentum);
  c.cycle_min_mom = list(p, "cycle_min_mom", c.cycle_min_mom);
  c.cycle_max_mom = list(p, "cycle_max_mom", c.cycle_max_mom);
  c.decay_mom_rate = p.value("decay_mom_rate", c.decay_mom_rate);
  c.lr_range_test_min_lr = list(p, "lr_range_test_min_lr", c.lr_range_test_min_lr);
  c.lr_range_test_step_size = p.value("lr_range_test_step_size", c.lr_range_test_step_size);
  c.lr_range_test_step_rate = p.value("lr_range_test_step_rate", c.lr_range_test_step_rate);
  c.lr_range_test_staircase = p.value("lr_range_test_staircase", c.lr_range_test_staircase);
  return c;
}

Schedule schedule(const Json& record) {
  std::vector<Schedule::Group> groups;
  for (const double lr : record.at("optimizer").at("lr")) groups.push_back({lr, 0.9, 0.999});
  return {scheduler(record.at("scheduler")), groups, record.at("optimizer").at("type") == "Adam"};
}

void expect_near(double got, double expected, const std::string& what) {
  EXPECT_LE(std::abs(got - expected), 1e-12 * std::abs(expected))
      << what << ": " << got << ", expected " << expected;
}

// `betas` is absent where the schedule never touches them.
void expect_values(const Schedule& s, const Json& lr, const Json* betas, const std::string& what) {
  ASSERT_EQ(lr.size(), s.groups()) << what;
  for (size_t g = 0; g < s.groups(); ++g) {
    expect_near(s.lr(g), lr[g], what + " lr");
    const double beta1 = betas != nullptr ? (*betas)[g][0].get<double>() : 0.9;
    const double beta2 = betas != nullptr ? (*betas)[g][1].get<double>() : 0.999;
    expect_near(s.betas(g).first, beta1, what + " beta1");
    expect_near(s.betas(g).second, beta2, what + " beta2");
  }
}

const Json* optional(const Json& j, const char* key) {
  return j.contains(key) ? &j.at(key) : nullptr;
}

void expect_trace(Schedule& s, const Json& trace, const std::string& id) {
  const Json* betas = optional(trace, "betas");
  for (size_t k = 0; k < trace.at("lr").size(); ++k) {
    s.step();
    expect_values(s, trace.at("lr")[k], betas != nullptr ? &(*betas)[k] : nullptr,
                  id + ", step " + std::to_string(k + 1));
  }
}

TEST(Golden, ScheduleTraces) {
  size_t compared = 0;
  for (const Json& r : records("schedules.json", "trace")) {
    const std::string id = r.at("id");
    Schedule whole = schedule(r);
    expect_values(whole, r.at("before").at("lr"), optional(r.at("before"), "betas"), id + ", before");
    expect_trace(whole, r.at("after"), id);

    const Json& reload = r.at("reload");
    Schedule resumed = schedule(r);
    resumed.load_state(reload.at("state").at("last_batch_iteration").get<int64_t>());
    // DeepSpeed's schedule leaves the rates alone here; ours are at once those of the run that never stopped.
    const size_t last = reload.at("after_steps").get<size_t>() - 1;
    const Json* betas = optional(r.at("after"), "betas");
    expect_values(resumed, r.at("after").at("lr")[last], betas != nullptr ? &(*betas)[last] : nullptr,
                  id + ", loaded");
    expect_trace(resumed, reload.at("next"), id + ", resumed");
    ++compared;
  }
  EXPECT_EQ(compared, 29U);
}

// ---- optimizers ----

OptimizerConfig optimizer(const Json& record) {
  const Json& p = record.at("optimizer").at("params");
  const std::string formula = record.at("formula");
  OptimizerConfig c;
  c.kind = formula == "adam"      ? OptimizerKind::adam
           : formula == "adamw"   ? OptimizerKind::adamw
           : formula == "sgd"     ? OptimizerKind::sgd
           : formula == "lion"    ? OptimizerKind::lion
           : formula == "adagrad" ? OptimizerKind::adagrad
                                  : OptimizerKind::lamb;
  c.lr = p.at("lr");
  if (p.contains("betas")) {
    c.beta1 = p.at("betas")[0];
    c.beta2 = p.at("betas")[1];
  }
  c.eps = p.value("eps", c.eps);
  c.weight_decay = p.value("weight_decay", c.weight_decay);
  c.bias_correction = p.value("bias_correction", c.bias_correction);
  c.momentum = p.value("momentum", c.momentum);
  c.dampening = p.value("dampening", c.dampening);
  c.nesterov = p.value("nesterov", c.nesterov);
  c.max_coeff = p.value("max_coeff", c.max_coeff);
  c.min_coeff = p.value("min_coeff", c.min_coeff);
  c.eps_inside_sqrt = p.value("eps_inside_sqrt", c.eps_inside_sqrt);
  c.lr_decay = p.value("lr_decay", c.lr_decay);
  c.initial_accumulator_value = p.value("initial_accumulator_value", c.initial_accumulator_value);
  return c;
}

kernels::Hyper hyper(const OptimizerConfig& c, int64_t step) {
  return {.lr = c.lr,
          .beta1 = c.beta1,
          .beta2 = c.beta2,
          .eps = c.eps,
          .weight_decay = c.weight_decay,
          .bias_correction = c.bias_correction,
          .momentum = c.momentum,
          .dampening = c.dampening,
          .nesterov = c.nesterov,
          .step = step};
}

void step(const OptimizerConfig& c, const kernels::Slice& slice, const kernels::Hyper& h) {
  if (c.kind != OptimizerKind::lamb) return update(c, slice, h);
  const kernels::LambNorms norms = kernels::lamb_moments(slice, h, c.eps_inside_sqrt);
  kernels::lamb_apply(slice, h, c.eps_inside_sqrt, lamb_trust_ratio(c, norms));
}

// Elements whose gradient is always 0: DeepSpeed's Lion moves them by lr a step, ours only decays them.
bool lion_stands_still(const OptimizerConfig& c, size_t i) {
  return c.kind == OptimizerKind::lion && i % 12 == 5;
}

void expect_path(const Json& record, const Json& start, const Json& gradients) {
  const std::string id = record.at("id");
  const OptimizerConfig c = optimizer(record);
  const double tolerance = c.bias_correction ? 1e-6 : 5e-6;
  auto p = start.get<std::vector<float>>();
  std::vector<float> moment1(p.size(), initial_moment(c)), moment2(p.size(), initial_moment(c));
  for (size_t k = 0; k < gradients.size(); ++k) {
    const auto g = gradients[k].get<std::vector<float>>();
    step(c,
         {.master = p.data(),
          .grad = g.data(),
          .moment1 = moment1.data(),
          .moment2 = moment2.data(),
          .n = static_cast<int64_t>(p.size())},
         hyper(c, static_cast<int64_t>(k) + 1));
    for (size_t i = 0; i < p.size(); ++i) {
      const double shrunk =
          start[i].get<double>() * std::pow(1 - c.lr * c.weight_decay, static_cast<double>(k) + 1);
      const double expected = lion_stands_still(c, i) ? shrunk : record.at("params")[k][i].get<double>();
      ASSERT_NEAR(p[i], expected, tolerance) << id << ", step " << k + 1 << ", element " << i;
    }
  }
  const std::vector<std::string> names = moment_names(c);
  for (size_t n = 0; n < names.size(); ++n) {
    const Json& state = record.at("state").at(names[n] == "exp_avg_sq" || names[n] == "sum" ? "v" : "m");
    for (size_t i = 0; i < p.size(); ++i) {
      ASSERT_NEAR((n == 0 ? moment1 : moment2)[i], state[i].get<double>(), 1e-6)
          << id << ", " << names[n] << " " << i;
    }
  }
}

TEST(Golden, OptimizerTrajectories) {
  const Json meta = golden("optimizers.json").at("meta");
  const std::vector<Json> all = records("optimizers.json", "trajectory");
  for (const char* target : kernels::available_targets()) {
    const testing::OnTarget scope(target);
    for (const Json& record : all) expect_path(record, meta.at("start"), meta.at("gradients"));
  }
  EXPECT_EQ(all.size(), 44U);
}

}  // namespace
}  // namespace aliquot
