#include "aliquot/models/load.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "aliquot/error.h"

namespace aliquot {
namespace {

constexpr const char* kHead = "lm_head.weight";

std::optional<at::ScalarType> scalar_type_of(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "F64") return at::kDouble;
  return std::nullopt;
}

const char* embedding_of(const ModelConfig& config) {
  return config.family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

// Buffers that old exports carry along; transformers ignores them too.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// The file's name of a parameter; nothing if it has none.
std::optional<std::string> name_in(const HfFolder& weights, const ModelConfig& config,
                                   const std::string& parameter) {
  const std::string bare = parameter.substr(parameter.find('.') + 1);
  if (weights.has(parameter)) return parameter;
  if (parameter != kHead && weights.has(bare)) return bare;
  if (config.tied_head && parameter == embedding_of(config) && weights.has(kHead)) return kHead;
  return std::nullopt;
}

// A view of the file; a copy where its writer did not align the data to the element.
at::Tensor tensor_in(const HfFolder& weights, const std::string& name, at::ScalarType type) {
  const std::span<const std::byte> bytes = weights.data(name);
  const at::IntArrayRef shape(weights.info(name).shape);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % c10::elementSize(type) == 0) {
    return at::from_blob(const_cast<std::byte*>(bytes.data()), shape, at::TensorOptions().dtype(type));
  }
  at::Tensor copy = at::empty(shape, type);
  std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.vec(), ", "));
}

/// Nothing if the tensor was copied; else why it cannot be.
std::optional<std::string> copy_into(at::Tensor parameter, const HfFolder& weights, const std::string& name) {
  const safetensors::TensorInfo& info = weights.info(name);
  const std::optional<at::ScalarType> type = scalar_type_of(info.dtype);
  if (!type) return fmt::format("{}: file {}, expected F32, BF16, F16 or F64", name, info.dtype);
  if (at::IntArrayRef(info.shape) != parameter.sizes()) {
    return fmt::format("{}: file {}, model {}", name, shape_text(info.shape), shape_text(parameter.sizes()));
  }
  parameter.copy_(tensor_in(weights, name, *type));
  return std::nullopt;
}

// A head in the file of a model that ties it must be the embedding, or the file is of an untied model.
std::optional<std::string> tied_head_problem(const HfFolder& weights, const std::string& embedding) {
  const auto a = weights.data(embedding), b = weights.data(kHead);
  if (std::ranges::equal(a, b)) return std::nullopt;
  return fmt::format("{}: differs from {}, but config.json ties them (tie_word_embeddings)", kHead,
                     embedding);
}

}  // namespace

LoadReport load_hf_weights(LanguageModel& model, const std::filesystem::path& folder,
                           const HfLoadOptions& options) {
  const HfFolder weights(folder);
  const c10::AutoGradMode no_grad(false);
  LoadReport report;
  std::set<std::string> used;
  for (const auto& item : model.named_parameters()) {
    const std::optional<std::string> name = name_in(weights, model.config(), item.key());
    if (!name) {
      report.missing.push_back(item.key());
      continue;
    }
    used.insert(*name);
    if (auto problem = copy_into(item.value(), weights, *name)) {
      report.mismatched.push_back(*std::move(problem));
      continue;
    }
    report.loaded.push_back(item.key());
    if (model.config().tied_head && item.key() == embedding_of(model.config()) && weights.has(kHead)) {
      used.insert(kHead);
      if (auto problem = tied_head_problem(weights, *name)) report.mismatched.push_back(*std::move(problem));
    }
  }
  for (const std::string& name : weights.names()) {
    if (!used.contains(name) && !is_buffer(name)) report.unexpected.push_back(name);
  }
  if (const std::string problem = report.problem(options.allow_missing); !problem.empty()) {
    throw IoError(fmt::format("{}: {}", folder.string(), problem));
  }
  return report;
}

}  // namespace aliquot
