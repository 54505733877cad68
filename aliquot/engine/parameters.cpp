#include "aliquot/engine/parameters.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "aliquot/engine/unfilled.h"
#include "aliquot/error.h"
#include "aliquot/pager/storage.h"

namespace aliquot {
namespace {

[[noreturn]] void refuse(const std::string& name, std::string_view why) {
  throw UsageError(fmt::format("parameter {}: {}", name, why));
}

void check_tensor(const NamedTensor& p) {
  const at::Tensor& t = p.tensor;
  if (!t.defined()) refuse(p.name, "the tensor is undefined");
  if (!t.device().is_cpu()) {
    refuse(p.name, fmt::format("is on {}; this build trains on the CPU", t.device().str()));
  }
  if (t.scalar_type() != at::kFloat && t.scalar_type() != at::kBFloat16 && t.scalar_type() != at::kHalf) {
    refuse(p.name, fmt::format("has dtype {}; parameters are float32, bfloat16 or float16",
                               toString(t.scalar_type())));
  }
  if (!t.is_leaf()) refuse(p.name, "is not a leaf: it was computed from other tensors");
  c10::StorageImpl* s = storage::of(t);
  if (s == nullptr) refuse(p.name, "has no storage (a sparse or wrapper tensor)");
  if (storage::tag_of(*s) != nullptr) refuse(p.name, "already belongs to another engine");
  if (t.grad().defined()) refuse(p.name, "has a .grad; clear gradients before the engine takes over");
}

// Storages that two different parameters use cannot be paged one by one.
void check_storages(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names) {
  std::unordered_map<const void*, size_t> seen;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [it, fresh] = seen.emplace(storage::of(tensors[i]), i);
    if (!fresh) {
      refuse(
          names[i],
          fmt::format("shares its storage with {}, but is another tensor; tie parameters by using the same "
                      "tensor, or give each its own memory",
                      names[it->second]));
    }
  }
}

bool keeps_fp32(const std::string& name, const Config& config) {
  for (const std::string& part : config.keep_fp32) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// A storage of its own, dense, from offset 0, in `dtype`. Strides survive if they are dense already.
void settle(at::Tensor& tensor, DType dtype) {
  const c10::AutoGradMode no_grad(false);
  const bool dense = tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
                     tensor.storage().nbytes() == static_cast<size_t>(tensor.numel()) * tensor.element_size();
  const at::ScalarType type = scalar_type(dtype);
  if (dense && tensor.scalar_type() == type) return;
  const bool requires_grad = tensor.requires_grad();
  tensor.set_requires_grad(false);
  tensor.set_data(is_unfilled(tensor) ? unfilled(tensor.sizes(), type)
                                      : tensor.detach().to(type, /*non_blocking=*/false, /*copy=*/true));
  tensor.set_requires_grad(requires_grad);
}

std::map<std::string, int> group_of_names(std::span<const ParamGroup> groups) {
  std::map<std::string, int> of;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g].names) {
      if (!of.emplace(name, static_cast<int>(g) + 1).second) refuse(name, "is in two parameter groups");
    }
  }
  return of;
}

}  // namespace

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return DType::bf16;
    case at::kHalf:
      return DType::fp16;
    default:
      return DType::fp32;
  }
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp16:
      return at::kHalf;
    case DType::fp32:
      break;
  }
  return at::kFloat;
}

Parameters adopt_parameters(std::span<const NamedTensor> named, std::span<const ParamGroup> groups,
                            const Config& config) {
  Parameters out;
  std::unordered_map<const void*, int> index_of;
  std::map<std::string, int> names;
  for (const NamedTensor& p : named) {
    if (p.name.empty()) throw UsageError("a parameter has no name");
    check_tensor(p);
    const auto [it, fresh] =
        index_of.emplace(p.tensor.unsafeGetTensorImpl(), static_cast<int>(out.tensors.size()));
    if (!names.emplace(p.name, it->second).second) refuse(p.name, "is listed twice");
    if (!fresh) {
      out.aliases.emplace_back(p.name, it->second);
      continue;
    }
    out.tensors.push_back(p.tensor);
    out.names.push_back(p.name);
  }
  check_storages(out.tensors, out.names);

  const std::map<std::string, int> group_names = group_of_names(groups);
  for (const auto& [name, group] : group_names) {
    if (!names.contains(name))
      refuse(name, fmt::format("is in parameter group {}, but the model has none of that name", group));
  }
  for (size_t i = 0; i < out.tensors.size(); ++i) {
    const DType dtype = keeps_fp32(out.names[i], config) ? DType::fp32 : config.param_dtype();
    const auto group = group_names.find(out.names[i]);
    out.specs.push_back({.name = out.names[i],
                         .numel = out.tensors[i].numel(),
                         .ndim = out.tensors[i].dim(),
                         .dtype = dtype,
                         .trainable = out.tensors[i].requires_grad(),
                         .group = group == group_names.end() ? 0 : group->second});
  }
  for (size_t i = 0; i < out.tensors.size(); ++i) settle(out.tensors[i], out.specs[i].dtype);
  return out;
}

}  // namespace aliquot
