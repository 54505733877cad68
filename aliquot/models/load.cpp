#include "aliquot/models/load.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "aliquot/error.h"

namespace aliquot {
namespace {

at::ScalarType scalar_type_of(const std::string& dtype) {
  static const std::map<std::string, at::ScalarType> types{
      {"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}, {"F64", at::kDouble}};
  const auto it = types.find(dtype);
  if (it == types.end()) throw IoError(fmt::format("weights of dtype {} cannot be loaded", dtype));
  return it->second;
}

// Buffers that old exports carry along; transformers ignores them too.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".inv_freq");
}

}  // namespace

LoadReport load_hf_weights(LanguageModel& model, const std::filesystem::path& folder) {
  const HfFolder weights(folder);
  const c10::AutoGradMode no_grad(false);
  LoadReport report;
  std::map<std::string, bool> known;
  for (const auto& item : model.named_parameters()) {
    std::string name = item.key();
    known[name] = true;
    // Exports of GPT-2's bare transformer lack the prefix.
    if (!weights.has(name) && name.starts_with("transformer."))
      name = name.substr(std::string("transformer.").size());
    known[name] = true;
    if (!weights.has(name)) {
      report.missing.push_back(item.key());
      continue;
    }
    const safetensors::TensorInfo& info = weights.info(name);
    at::Tensor parameter = item.value();
    if (at::IntArrayRef(info.shape) != parameter.sizes()) {
      report.mismatched.push_back(fmt::format("{}: file [{}], model [{}]", name, fmt::join(info.shape, ", "),
                                              fmt::join(parameter.sizes().vec(), ", ")));
      continue;
    }
    void* data = const_cast<std::byte*>(weights.data(name).data());
    parameter.copy_(at::from_blob(data, info.shape, at::TensorOptions().dtype(scalar_type_of(info.dtype))));
    report.loaded.push_back(name);
  }
  for (const std::string& name : weights.names()) {
    if (known.contains(name) || is_buffer(name)) continue;
    if (name == "lm_head.weight" && model.config().tied_head) continue;
    report.unexpected.push_back(name);
  }
  if (const std::string problem = report.problem(); !problem.empty()) {
    throw IoError(fmt::format("{}: {}", folder.string(), problem));
  }
  return report;
}

}  // namespace aliquot
