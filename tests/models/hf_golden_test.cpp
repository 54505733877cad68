// Every record of golden/hf.json: folders that transformers wrote give its logits, loss and gradient norms
// here.
#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "aliquot/models/load.h"
#include "aliquot/models/model.h"

namespace aliquot::test {
namespace {

using nlohmann::json;

std::string data(const std::string& path) {
  return std::string(ALIQUOT_TEST_DATA) + "/" + path;
}

at::Tensor ids_of(const json& record) {
  std::vector<int64_t> flat;
  for (const json& row : record["ids"]) {
    for (const json& id : row) flat.push_back(id);
  }
  return at::tensor(flat).view({static_cast<int64_t>(record["ids"].size()), -1});
}

void check_parameters(const json& record, LanguageModel& model) {
  const auto parameters = model.named_parameters();
  int64_t numel = 0;
  EXPECT_EQ(parameters.size(), record["parameters"].size());
  for (const json& p : record["parameters"]) {
    const at::Tensor* ours = parameters.find(p["name"].get<std::string>());
    ASSERT_NE(ours, nullptr) << p["name"];
    EXPECT_EQ(ours->sizes().vec(), p["shape"].get<std::vector<int64_t>>()) << p["name"];
    numel += ours->numel();
  }
  EXPECT_EQ(parameter_count(model.config()), numel);
}

void check_logits(const json& record, const at::Tensor& logits) {
  const json& expected = record["logits_first_row"];
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t v = 0; v < expected[t].size(); ++v) {
      const double got = logits[0][static_cast<int64_t>(t)][static_cast<int64_t>(v)].item<double>();
      ASSERT_NEAR(got, expected[t][v].get<double>(), 5e-6) << t << " " << v;
    }
  }
  // What 5e-6 on every logit allows of their sum and of the sum of their squares.
  const at::Tensor wide = logits.to(at::kDouble);
  const double n = static_cast<double>(logits.numel());
  EXPECT_NEAR(wide.sum().item<double>(), record["logits_sum"].get<double>(), 5e-6 * n);
  EXPECT_NEAR(wide.square().sum().item<double>(), record["logits_sum_squares"].get<double>(),
              2 * 5e-6 * wide.abs().sum().item<double>());
}

void check_gradients(const json& record, LanguageModel& model) {
  double squares = 0;
  for (const auto& item : model.named_parameters()) {
    const double expected = record["gradient_norms"].at(item.key());
    const double norm = item.value().grad().to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(norm, expected, 1e-5 * expected) << item.key();
    squares += norm * norm;
  }
  const double whole = record["global_gradient_norm"];
  EXPECT_NEAR(std::sqrt(squares), whole, 1e-5 * whole);
}

void check_record(const json& record) {
  const std::string folder = data(record["folder"]);
  const auto model = make_model(load_model_config(folder), 1);
  const LoadReport report = load_hf_weights(*model, folder);
  EXPECT_TRUE(report.unexpected.empty());
  check_parameters(record, *model);
  model->eval();
  const at::Tensor ids = ids_of(record);
  check_logits(record, model->logits(ids).detach());

  // Labels are the ids themselves; each position predicts the next one, the last nothing.
  at::Tensor targets = at::full_like(ids, -100);
  targets.slice(1, 0, ids.size(1) - 1).copy_(ids.slice(1, 1));
  const at::Tensor loss = model->loss(ids, targets);
  EXPECT_NEAR(loss.item<double>(), record["loss"].get<double>(), 1e-5 * record["loss"].get<double>());
  loss.backward();
  check_gradients(record, *model);
}

TEST(HfGolden, FoldersOfTransformers) {
  at::set_num_threads(1);
  const json records = json::parse(std::ifstream(data("hf.json")))["records"];
  EXPECT_EQ(records.size(), 8U);
  for (const json& record : records) {
    SCOPED_TRACE(record["id"].get<std::string>());
    check_record(record);
  }
}

}  // namespace
}  // namespace aliquot::test
