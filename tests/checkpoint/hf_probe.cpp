// hf_probe FOLDER ID,ID,… [OUT DTYPE MAX_SHARD_BYTES]: loss, logits and gradient norms of a Hugging Face
// folder as JSON, and the folder written again, for transformers_roundtrip.py.
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <utility>

#include "aliquot/models/load.h"
#include "aliquot/models/save.h"

namespace {

void print(aliquot::LanguageModel& model, const at::Tensor& input) {
  at::Tensor targets = at::full_like(input, -100);
  targets.slice(1, 0, input.size(1) - 1).copy_(input.slice(1, 1));
  const at::Tensor logits = model.logits(input)[0].contiguous(), loss = model.loss(input, targets);
  loss.backward();
  fmt::print("{{\"loss\": {:.9g}, \"gradient_norms\": {{", loss.item<double>());
  const char* comma = "";
  for (const auto& item : model.named_parameters()) {
    const double norm = item.value().grad().to(at::kDouble).norm().item<double>();
    fmt::print("{}\"{}\": {:.17g}", std::exchange(comma, ", "), item.key(), norm);
  }
  fmt::print("}}, \"logits\": [");
  for (int64_t t = 0; t < logits.size(0); ++t) {
    const float* row = logits.const_data_ptr<float>() + t * logits.size(1);
    fmt::print("{}[{:.9g}]", t > 0 ? ", " : "", fmt::join(row, row + logits.size(1), ", "));
  }
  fmt::print("]}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 6) return 2;
  const auto model = aliquot::make_model(aliquot::load_model_config(argv[1]), 1);
  aliquot::load_hf_weights(*model, argv[1]);
  model->eval();
  std::vector<int64_t> ids;
  std::stringstream text(argv[2]);
  for (std::string id; std::getline(text, id, ',');) ids.push_back(std::stoll(id));
  print(*model, at::tensor(ids).unsqueeze(0));
  if (argc == 3) return 0;

  if (std::string(argv[4]) == "bfloat16") model->to(at::kBFloat16);
  const auto parameters = model->named_parameters();
  aliquot::save_hf_weights(
      *model, argv[3], [&](const std::string& name) { return parameters[name]; }, std::stoll(argv[5]));
  return 0;
}
