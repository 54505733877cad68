#include "aliquot/pager/op_facts.h"

#include <ATen/core/function_schema.h>

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace aliquot {
namespace {

// Operators that take a tensor for its shape, dtype or identity alone; their schemas do not show it.
constexpr std::array kMetadataOnly{
    std::string_view("aten::empty_like"),
    std::string_view("aten::zeros_like"),
    std::string_view("aten::ones_like"),
    std::string_view("aten::full_like"),
    std::string_view("aten::rand_like"),
    std::string_view("aten::randn_like"),
    std::string_view("aten::randint_like"),
    std::string_view("aten::new_empty"),
    std::string_view("aten::new_zeros"),
    std::string_view("aten::new_ones"),
    std::string_view("aten::new_full"),
    std::string_view("aten::new_empty_strided"),
    std::string_view("aten::size"),
    std::string_view("aten::stride"),
    std::string_view("aten::numel"),
    std::string_view("aten::dim"),
    std::string_view("aten::sym_size"),
    std::string_view("aten::sym_stride"),
    std::string_view("aten::sym_numel"),
    std::string_view("aten::is_same_size"),
    std::string_view("aten::result_type"),
    std::string_view("aten::is_floating_point"),
    std::string_view("aten::is_complex"),
    std::string_view("aten::is_leaf"),
    std::string_view("aten::_version"),
    std::string_view("aten::output_nr"),
    std::string_view("aten::_has_compatible_shallow_copy_type"),
};

// Marked as writing by their schemas, but they change autograd's metadata only.
constexpr std::array kAutogradOnly{
    std::string_view("aten::requires_grad_"),
    std::string_view("aten::retain_grad"),
    std::string_view("aten::detach_"),
};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::string_view n : names) {
    if (n == name) return true;
  }
  return false;
}

OpFacts facts_from(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  const bool nothing = contains(kMetadataOnly, name) || contains(kAutogradOnly, name);
  OpFacts facts;
  facts.arguments.reserve(schema.arguments().size());
  for (const c10::Argument& argument : schema.arguments()) {
    Access access = Access::read;
    if (nothing) {
      access = Access::none;
    } else if (const c10::AliasInfo* alias = argument.alias_info()) {
      // An aliased argument that is not written is returned as a view; an operator that copies after all
      // (contiguous, reshape) calls another one for it.
      access = alias->isWrite() ? Access::write : Access::none;
    }
    facts.arguments.push_back(access);
  }
  return facts;
}

}  // namespace

const OpFacts& facts_of(const at::RecordFunction& fn) {
  static std::mutex mutex;
  static auto& cache = *new std::unordered_map<const char*, std::unique_ptr<OpFacts>>();
  const char* key = fn.name();
  const std::lock_guard lock(mutex);
  std::unique_ptr<OpFacts>& entry = cache[key];
  if (!entry) {
    const auto schema = fn.operator_schema();
    entry = std::make_unique<OpFacts>(schema ? facts_from(*schema) : OpFacts{});
  }
  return *entry;
}

}  // namespace aliquot
