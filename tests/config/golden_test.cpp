// What DeepSpeed 0.19.8 makes of batch sizes, optimizers, loss scales and schedules (tests/golden), and where
// we differ on purpose. Each departure is a named case here and a line under "Differences from DeepSpeed" in
// docs/config.md.
#include <fstream>
#include <nlohmann/json.hpp>

#include "testing.h"

namespace aliquot {
namespace {

using testing::says;

using Json = nlohmann::json;
using testing::errors_of;
using testing::golden_path;
using testing::resolve;
using testing::world;

Json records(const std::string& file) {
  std::ifstream in(golden_path(file));
  EXPECT_TRUE(in) << file;
  return Json::parse(in).at("records");
}

// What we do with a record, if it is not what DeepSpeed does.
enum class Difference { none, we_accept, we_refuse };

bool is_digits(const Json& v) {
  const auto text = v.is_string() ? v.get<std::string>() : "";
  return !text.empty() && text.find_first_not_of("0123456789.e-") == std::string::npos;
}

bool any_of(const Json& object, bool (*holds)(const Json&)) {
  return std::any_of(object.begin(), object.end(), [&](const Json& v) { return holds(v); });
}

// ---- batch ----

Difference batch_difference(const Json& config) {
  // Sequence parallelism is not here; DeepSpeed computes with a fractional world size then.
  if (config.contains("sequence_parallel_size")) return Difference::we_refuse;
  // Numbers in quotes are numbers everywhere.
  if (any_of(config, is_digits)) return Difference::we_accept;
  // "auto" is resolved here; in DeepSpeed the front end must have done it.
  if (any_of(config, [](const Json& v) { return v == "auto"; })) return Difference::we_accept;
  return Difference::none;
}

TEST(Golden, Batch) {
  int compared = 0, differences = 0;
  for (const Json& r : records("batch.json")) {
    const std::string id = r.at("id");
    const RunFacts facts = world(r.at("world"));
    const std::vector<std::string> errors = errors_of(r.at("config").dump(), facts);
    const Difference difference = batch_difference(r.at("config"));
    if (difference != Difference::none) {
      EXPECT_EQ(errors.empty(), difference == Difference::we_accept) << id;
      ++differences;
    } else if (r.contains("error")) {
      ASSERT_FALSE(errors.empty()) << id;
      const std::string kind = r.at("error").at("class");
      if (kind == "missing" && !any_of(r.at("config"), [](const Json& v) { return v == 0; })) {
        EXPECT_TRUE(says(errors.front(), "is needed")) << id;
      }
      if (kind == "mismatch" && r.at("config").size() < 4 &&
          !any_of(r.at("config"), [](const Json& v) { return !v.is_number_integer(); })) {
        EXPECT_TRUE(says(errors.front(), " != ")) << id;
      }
    } else {
      ASSERT_TRUE(errors.empty()) << id << errors.front();
      const Config c = resolve(r.at("config").dump(), facts).config;
      const Json ours = {c.train_batch_size, c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps};
      for (size_t i = 0; i < 3; ++i) {
        const Json& theirs = r.at("resolved").at(i);
        EXPECT_EQ(ours[i].get<double>(), theirs.is_boolean() ? theirs.get<bool>() : theirs.get<double>())
            << id;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(differences, 10);
}

TEST(Golden, BatchDifferencesGiveWhatTheNumberGives) {
  EXPECT_EQ(resolve(R"({"train_batch_size": "8"})", world(2)).config.train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(resolve(R"({"train_micro_batch_size_per_gpu": "4", "gradient_accumulation_steps": 2})", world(2))
                .config.train_batch_size,
            16);
}

// ---- optimizers ----

Difference optimizer_difference(const Json& config) {
  const std::string type = config.at("optimizer").at("type");
  const Json& params = config.at("optimizer").at("params");
  // Tested here with every stage, and with kernels for the CPU.
  if (type == "SGD" || type == "Lion" || type == "Lamb") return Difference::we_accept;
  // A rate below 0, a moment that grows: mistakes.
  if (params.value("lr", Json(0)).is_number() && params.value("lr", 0.0) < 0) return Difference::we_refuse;
  if (params.contains("betas") && params["betas"].size() == 2 && params["betas"][1] >= 1) {
    return Difference::we_refuse;
  }
  if (params.value("amsgrad", false)) return Difference::we_refuse;  // not here, with torch_adam neither
  if (type == "NAdam") return Difference::we_refuse;            // torch's own optimizers but SGD are not here
  if (any_of(params, is_digits)) return Difference::we_accept;  // numbers in quotes
  return Difference::none;
}

OptimizerKind kind_of(const Json& picked) {
  const std::string name = picked.at("class");
  if (name == "torch.AdamW") return OptimizerKind::adamw;
  if (name == "torch.Adam") return OptimizerKind::adam;
  if (name == "torch.SGD") return OptimizerKind::sgd;
  if (name.find("Adagrad") != std::string::npos) return OptimizerKind::adagrad;
  return picked.at("adam_w") == true ? OptimizerKind::adamw : OptimizerKind::adam;
}

void expect_picked(const OptimizerConfig& ours, const Json& picked, const std::string& id) {
  const Json& defaults = picked.at("defaults");
  EXPECT_EQ(ours.kind, kind_of(picked)) << id;
  EXPECT_EQ(ours.lr, defaults.at("lr").get<double>()) << id;
  EXPECT_EQ(ours.weight_decay, defaults.at("weight_decay").get<double>()) << id;
  if (defaults.contains("betas")) {
    EXPECT_EQ(ours.beta1, defaults["betas"][0].get<double>()) << id;
    EXPECT_EQ(ours.beta2, defaults["betas"][1].get<double>()) << id;
  }
  if (defaults.contains("eps")) {
    EXPECT_EQ(ours.eps, defaults["eps"].get<double>()) << id;
  }
  if (defaults.contains("bias_correction")) {
    EXPECT_EQ(ours.bias_correction, defaults["bias_correction"].get<bool>()) << id;
  }
  if (defaults.contains("momentum")) {
    EXPECT_EQ(ours.momentum, defaults["momentum"].get<double>()) << id;
  }
  if (defaults.contains("lr_decay")) {
    EXPECT_EQ(ours.lr_decay, defaults["lr_decay"].get<double>()) << id;
  }
}

TEST(Golden, OptimizersPicked) {
  int compared = 0;
  for (const Json& r : records("optimizers.json")) {
    if (r.at("kind") != "pick") continue;
    const std::string id = r.at("id");
    Json config = r.at("config");
    const Difference difference = optimizer_difference(config);
    config["train_batch_size"] = 1;
    const std::vector<std::string> errors = errors_of(config.dump());
    if (difference != Difference::none && (difference == Difference::we_accept) == r.at("picked").is_null()) {
      EXPECT_EQ(errors.empty(), difference == Difference::we_accept) << id << config;
    } else if (r.at("picked").is_null()) {
      EXPECT_FALSE(errors.empty()) << id << config;
    } else {
      ASSERT_TRUE(errors.empty()) << id << errors.front();
      expect_picked(*resolve(config.dump()).config.optimizer, r.at("picked"), id);
      ++compared;
    }
  }
  EXPECT_GT(compared, 15);
}

// The trajectories' optimizers are all accepted, with the values they name.
TEST(Golden, OptimizersOfTheTrajectories) {
  for (const Json& r : records("optimizers.json")) {
    if (r.at("kind") != "trajectory") continue;
    const std::string text = Json{{"train_batch_size", 1}, {"optimizer", r.at("optimizer")}}.dump();
    ASSERT_TRUE(errors_of(text).empty()) << errors_of(text).front();
    const OptimizerConfig c = *resolve(text).config.optimizer;
    EXPECT_EQ(c.lr, r.at("optimizer").at("params").at("lr").get<double>());
  }
}

// ---- loss scale ----

Difference loss_scale_difference(const Json& fp16) {
  // With a hysteresis below 1 DeepSpeed's scale never falls again.
  if (fp16.contains("hysteresis") && fp16["hysteresis"].is_number_integer() && fp16["hysteresis"] < 1) {
    return Difference::we_refuse;
  }
  // A scale that starts below 1, or beyond the range of fp32.
  if (fp16.contains("initial_scale_power") && fp16["initial_scale_power"].is_number_integer() &&
      (fp16["initial_scale_power"] < 0 || fp16["initial_scale_power"] > 127)) {
    return Difference::we_refuse;
  }
  return Difference::none;
}

TEST(Golden, LossScale) {
  for (const Json& r : records("loss_scale.json")) {
    if (r.at("kind") != "wrong") continue;
    const std::string id = r.at("id");
    Json fp16 = r.at("fp16");
    if (!fp16.contains("enabled")) fp16["enabled"] = true;
    const std::string text = Json{{"train_batch_size", 1}, {"fp16", fp16}}.dump();
    const bool accepted =
        r.at("accepted").get<bool>() && loss_scale_difference(r.at("fp16")) == Difference::none;
    EXPECT_EQ(errors_of(text).empty(), accepted) << id;
    if (!accepted) continue;
    const std::string key = r.at("fp16").begin().key();
    const Json ours = Json::parse(value_text(resolve(text).config, "fp16." + key));
    const Json& theirs = r.at("becomes");
    if (theirs.is_boolean()) {
      EXPECT_EQ(ours, theirs) << id;
    } else {
      EXPECT_EQ(ours.get<double>(), theirs.get<double>()) << id;
    }
  }
}

// Every fp16 block of the patterns is accepted, apart from the faults above.
TEST(Golden, LossScalePatterns) {
  for (const Json& r : records("loss_scale.json")) {
    if (r.at("kind") == "wrong") continue;
    const std::string text = Json{{"train_batch_size", 1}, {"fp16", r.at("fp16")}}.dump();
    EXPECT_EQ(errors_of(text).empty(), loss_scale_difference(r.at("fp16")) == Difference::none) << r.at("id");
  }
}

// ---- schedules ----

Difference schedule_difference(const Json& params) {
  for (const auto& [key, v] : params.items()) {
    // Numbers in quotes, and whole numbers with a point: numbers everywhere.
    if (is_digits(v) && key != "warmup_type") return Difference::we_accept;
    const bool steps = key == "warmup_num_steps" || key == "lr_range_test_step_size";
    if (steps && v.is_number_float() && v > 0 && v == std::floor(v.get<double>())) {
      return Difference::we_accept;
    }
    if (v == "auto" && key != "total_num_steps") return Difference::we_accept;  // resolved here
    if (key.find("_lr") != std::string::npos && v.is_number() && v < 0) return Difference::we_refuse;
    if (key == "decay_step_size" && v.is_number() && v < 0) return Difference::we_refuse;
    if (key == "total_num_steps" && v.is_number() && (v < 1 || v != std::floor(v.get<double>()))) {
      return Difference::we_refuse;
    }
    if (key == "warmup_type" && v != "log" && v != "linear") {
      return Difference::we_refuse;  // DeepSpeed warns and takes log
    }
  }
  return Difference::none;
}

TEST(Golden, SchedulesRefused) {
  RunFacts facts;
  facts.param_groups = 1;
  for (const Json& r : records("schedules.json")) {
    if (r.at("kind") != "wrong") continue;
    const std::string text = Json{{"train_batch_size", 1}, {"scheduler", r.at("scheduler")}}.dump();
    const Difference difference = schedule_difference(r.at("scheduler").at("params"));
    const bool accepted =
        difference == Difference::none ? r.at("raises").is_null() : difference == Difference::we_accept;
    EXPECT_EQ(errors_of(text, facts).empty(), accepted) << r.at("id") << r.at("scheduler");
  }
}

TEST(Golden, SchedulesOfTheTraces) {
  for (const Json& r : records("schedules.json")) {
    if (r.at("kind") == "wrong") continue;
    const std::string text = Json{{"train_batch_size", 1}, {"scheduler", r.at("scheduler")}}.dump();
    EXPECT_TRUE(errors_of(text).empty()) << r.at("id") << errors_of(text).front();
  }
}

}  // namespace
}  // namespace aliquot
