// hf_probe FOLDER ID,ID,…: loss and logits of a Hugging Face folder as JSON, for transformers_roundtrip.py.
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "aliquot/models/load.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto model = aliquot::make_model(aliquot::load_model_config(argv[1]), 1);
  aliquot::load_hf_weights(*model, argv[1]);
  model->eval();
  std::vector<int64_t> ids;
  std::stringstream text(argv[2]);
  for (std::string id; std::getline(text, id, ',');) ids.push_back(std::stoll(id));
  const at::Tensor input = at::tensor(ids).unsqueeze(0);
  at::Tensor targets = at::full_like(input, -100);
  targets.slice(1, 0, input.size(1) - 1).copy_(input.slice(1, 1));
  const at::Tensor logits = model->logits(input)[0].contiguous();
  fmt::print("{{\"loss\": {:.9g}, \"logits\": [", model->loss(input, targets).item<double>());
  for (int64_t t = 0; t < logits.size(0); ++t) {
    const float* row = logits.const_data_ptr<float>() + t * logits.size(1);
    fmt::print("{}[{:.9g}]", t > 0 ? ", " : "", fmt::join(row, row + logits.size(1), ", "));
  }
  fmt::print("]}}\n");
  return 0;
}
