// StepRecord and RunSummary as JSON, and back.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/observe/metrics.h"

namespace aliquot {

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json, int indent) {
  // A parameter may have any bytes for a name; a line of JSON may not.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Sets json[key], and json["nonfinite"][key] where JSON has no word for the number.
void set_number(Json& json, const char* key, double value) {
  if (std::isfinite(value)) {
    json[key] = value;
    return;
  }
  json[key] = nullptr;
  json["nonfinite"][key] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void set_number(Json& json, const char* key, const std::optional<double>& value) {
  if (value)
    set_number(json, key, *value);
  else
    json[key] = nullptr;
}

/// json[key] as set_number left it; nothing where it is absent.
std::optional<double> get_number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  const auto nonfinite = json.find("nonfinite");
  if (nonfinite == json.end() || !nonfinite->contains(key)) return std::nullopt;
  const auto word = nonfinite->at(key).get<std::string>();
  return word == "nan" ? std::nan("") : word == "inf" ? HUGE_VAL : -HUGE_VAL;
}

Json to_object(const MemoryUse& use) {
  return {{"current", use.current}, {"peak", use.peak}};
}

Json to_object(const std::map<std::string, PlaceMemory>& memory) {
  Json places = Json::object();
  for (const auto& [place, entry] : memory) {
    Json kinds = Json::object();
    for (const auto& [kind, use] : entry.kinds) kinds[kind] = to_object(use);
    kinds["total"] = to_object(entry.total);
    places[place] = std::move(kinds);
  }
  return places;
}

std::map<std::string, PlaceMemory> parse_memory(const Json& places) {
  std::map<std::string, PlaceMemory> memory;
  for (const auto& [place, kinds] : places.items()) {
    PlaceMemory& entry = memory[place];
    for (const auto& [kind, use] : kinds.items()) {
      const MemoryUse parsed{use.at("current").get<int64_t>(), use.at("peak").get<int64_t>()};
      (kind == "total" ? entry.total : entry.kinds[kind]) = parsed;
    }
  }
  return memory;
}

StepRecord parse_object(const Json& json) {
  StepRecord record;
  record.step = json.at("step").get<int64_t>();
  record.samples = json.at("samples").get<int64_t>();
  record.tokens = json.at("tokens").get<int64_t>();
  record.loss = get_number(json, "loss").value_or(std::nan(""));
  record.eval_loss = get_number(json, "eval_loss");
  record.lr = get_number(json, "lr").value_or(0);
  record.grad_norm = get_number(json, "grad_norm");
  record.clip_coefficient = get_number(json, "clip_coefficient").value_or(1);
  record.loss_scale = get_number(json, "loss_scale").value_or(1);
  record.skipped = json.at("skipped").get<bool>();
  record.skip_reason = json.value("skip_reason", "");
  record.tokens_per_s = get_number(json, "tokens_per_s").value_or(0);
  record.matmul_percent = get_number(json, "matmul_percent").value_or(0);
  for (const auto& [phase, ms] : json.at("ms").items()) record.ms[phase] = ms.get<double>();
  record.memory = parse_memory(json.at("memory"));
  for (const auto& [collective, bytes] : json.at("bytes").items())
    record.bytes[collective] = bytes.get<int64_t>();
  return record;
}

}  // namespace

std::string to_json(const StepRecord& record) {
  Json json;
  json["step"] = record.step;
  json["samples"] = record.samples;
  json["tokens"] = record.tokens;
  set_number(json, "loss", record.loss);
  if (record.eval_loss) set_number(json, "eval_loss", record.eval_loss);
  set_number(json, "lr", record.lr);
  set_number(json, "grad_norm", record.grad_norm);
  set_number(json, "clip_coefficient", record.clip_coefficient);
  set_number(json, "loss_scale", record.loss_scale);
  json["skipped"] = record.skipped;
  if (record.skipped) json["skip_reason"] = record.skip_reason;
  set_number(json, "tokens_per_s", record.tokens_per_s);
  set_number(json, "matmul_percent", record.matmul_percent);
  json["ms"] = record.ms;
  json["memory"] = to_object(record.memory);
  json["bytes"] = record.bytes;
  return dump(json, -1);
}

StepRecord parse_record(const std::string& line) {
  try {
    return parse_object(Json::parse(line));
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("not a record of metrics.jsonl: {}", error.what()));
  }
}

std::string to_json(const RunSummary& summary) {
  Json json;
  json["status"] = summary.status;
  if (!summary.error.empty()) json["error"] = summary.error;
  json["model"] = summary.model;
  json["parameters"] = summary.parameters;
  json["dtype"] = summary.dtype;
  json["world"] = summary.world;
  json["zero_stage"] = summary.zero_stage;
  json["seq_len"] = summary.seq_len;
  json["train_batch_size"] = summary.train_batch_size;
  json["seed"] = summary.seed;
  json["steps"] = summary.steps;
  json["skipped_steps"] = summary.skipped_steps;
  json["samples"] = summary.samples;
  json["tokens"] = summary.tokens;
  set_number(json, "seconds", summary.seconds);
  set_number(json, "loss", summary.loss);
  set_number(json, "eval_loss", summary.eval_loss);
  set_number(json, "best_eval_loss", summary.best_eval_loss);
  set_number(json, "tokens_per_s", summary.tokens_per_s);
  set_number(json, "matmul_percent", summary.matmul_percent);
  json["memory"] = to_object(summary.memory);
  json["records_lost"] = summary.records_lost;
  return dump(json, 2);
}

}  // namespace aliquot
