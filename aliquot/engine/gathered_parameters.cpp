#include "aliquot/engine/gathered_parameters.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <functional>
#include <string_view>

#include "aliquot/engine/state.h"
#include "aliquot/error.h"
#include "aliquot/log.h"

namespace aliquot {
namespace {

uint64_t hash_of(const Buffer& memory) {
  return std::hash<std::string_view>{}({memory.as<const char>(), static_cast<size_t>(memory.bytes())});
}

}  // namespace

GatheredParameters::GatheredParameters(Engine& engine, const std::vector<std::string>& names,
                                       std::optional<int> modifier_rank)
    : state_(engine.state()), modifier_rank_(modifier_rank), exceptions_(std::uncaught_exceptions()) {
  if (modifier_rank && (*modifier_rank < 0 || *modifier_rank >= state_.comm.size())) {
    throw UsageError(fmt::format("GatheredParameters: modifier_rank {} is outside the world of {}",
                                 *modifier_rank, state_.comm.size()));
  }
  std::vector<int> params;
  for (const std::string& name : names.empty() ? state_.parameters.names : names)
    params.push_back(state_.find(name));
  for (const int param : params) {
    if (state_.pager->is_writable(param)) {
      end_scope();
      throw UsageError(fmt::format("GatheredParameters: {} is in another such scope",
                                   state_.parameters.names[static_cast<size_t>(param)]));
    }
    const SegmentId id = state_.layout->segment_of(param);
    const Unit& unit = state_.layout->unit(id.unit);
    const Segment& segment = state_.layout->segment(id);
    state_.pager->pin(id.unit, Mode::no_grad);
    // One byte at least: a null pointer would end the scope of an empty parameter.
    Entry entry{
        param, Buffer(state_.meter, Kind::staging, std::max<int64_t>(segment.numel * size_of(unit.dtype), 1)),
        0};
    std::memcpy(entry.memory.data(),
                state_.pager->store().gather(id.unit) + segment.offset * size_of(unit.dtype),
                static_cast<size_t>(segment.numel * size_of(unit.dtype)));
    entry.before = hash_of(entry.memory);
    state_.pager->set_writable(param, entry.memory.data());
    entries_.push_back(std::move(entry));
  }
}

GatheredParameters::~GatheredParameters() {
  if (!open_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    end_scope();
    return;
  }
  try {
    close();
  } catch (const std::exception& e) {
    log::warn("GatheredParameters: {}", e.what());
  }
}

void GatheredParameters::end_scope() {
  open_ = false;
  for (const Entry& entry : entries_) {
    state_.pager->set_writable(entry.param, nullptr);
    state_.pager->unpin(state_.layout->segment_of(entry.param).unit);
  }
}

void GatheredParameters::close() {
  if (!open_) return;
  end_scope();
  publish();
}

void GatheredParameters::publish() {
  const int world = state_.comm.size();
  struct Hashes {
    uint64_t before, after;
  };
  std::vector<Hashes> mine, all(entries_.size() * static_cast<size_t>(world));
  for (const Entry& entry : entries_) mine.push_back({entry.before, hash_of(entry.memory)});
  state_.comm.all_gather(mine.data(), all.data(), mine.size() * sizeof(Hashes), "close GatheredParameters");
  const auto hashes = [&](size_t i, int rank) {
    return all[static_cast<size_t>(rank) * entries_.size() + i];
  };

  for (size_t i = 0; i < entries_.size() && !modifier_rank_; ++i) {
    for (int r = 1; r < world; ++r) {
      if (hashes(i, r).after == hashes(i, 0).after) continue;
      throw UsageError(fmt::format(
          "GatheredParameters: ranks 0 and {} wrote different values to {}; write the same on every "
          "rank, or name the rank whose values count (modifier_rank)",
          r, state_.parameters.names[static_cast<size_t>(entries_[i].param)]));
    }
  }
  const c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int source = modifier_rank_.value_or(0);
    if (hashes(i, source).before == hashes(i, source).after) continue;
    Entry& entry = entries_[i];
    const at::Tensor& tensor = state_.parameters.tensors[static_cast<size_t>(entry.param)];
    const DType dtype = state_.parameters.specs[static_cast<size_t>(entry.param)].dtype;
    state_.comm.broadcast(entry.memory.data(), static_cast<size_t>(entry.memory.bytes()), source,
                          "values of GatheredParameters");
    at::Tensor value = at::empty_strided(tensor.sizes(), tensor.strides(), at::kFloat);
    kernels::widen(entry.memory.data(), dtype, value.mutable_data_ptr<float>(), tensor.numel());
    state_.write_param(entry.param, value);
  }
}

}  // namespace aliquot
