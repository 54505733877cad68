// Model states by parameter name, whatever rank holds them. One piece of a parameter lies on one rank, so a
// whole one is had by a broadcast per owner: bytes sent (N−1) × parameter, steps N.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <functional>

#include "aliquot/engine/state.h"
#include "aliquot/error.h"
#include "aliquot/optim/optimizer.h"

namespace aliquot {
namespace {

at::TensorOptions fp32() {
  return at::TensorOptions().dtype(at::kFloat);
}

// fp32 in the parameter's own sizes and memory order.
at::Tensor like(const at::Tensor& parameter) {
  return at::empty_strided(parameter.sizes(), parameter.strides(), fp32());
}

// `value` in the memory order of `parameter`, fp32.
at::Tensor ordered(const std::string& name, const at::Tensor& parameter, const at::Tensor& value) {
  if (!value.defined() || value.sizes() != parameter.sizes()) {
    throw UsageError(fmt::format("parameter {}: the value must have the parameter's shape", name));
  }
  at::Tensor out = like(parameter);
  out.copy_(value);
  return out;
}

std::vector<Piece> pieces_of(const EngineState& s, int param, int rank) {
  const SegmentId id = s.layout->segment_of(param);
  std::vector<Piece> out;
  for (const Piece& piece : s.layout->pieces(id.unit, rank)) {
    if (piece.segment == id.segment) out.push_back(piece);
  }
  return out;
}

/// fp32 pointer to this rank's elements from `unit_offset` on.
using Source = std::function<void(const Piece&, float* out)>;

// Fills `out` with the whole parameter: own pieces from `source`, the others' by broadcast.
void collect(const EngineState& s, int param, bool replicated, const Source& source, float* out) {
  for (int r = 0; r < s.comm.size(); ++r) {
    for (const Piece& piece : pieces_of(s, param, r)) {
      float* part = out + piece.param_offset;
      if (replicated || r == s.comm.rank()) source(piece, part);
      if (!replicated) {
        s.comm.broadcast(part, static_cast<size_t>(piece.numel) * sizeof(float), r,
                         fmt::format("state of {}", s.parameters.names[static_cast<size_t>(param)]));
      }
    }
  }
}

at::Tensor collect_local(const EngineState& s, int param, const Source& source) {
  const std::vector<Piece> pieces = pieces_of(s, param, s.comm.rank());
  at::Tensor out = at::zeros({pieces.empty() ? 0 : pieces[0].numel}, fp32());
  if (!pieces.empty()) source(pieces[0], out.mutable_data_ptr<float>());
  return out;
}

Source from_master(EngineState& s, int param) {
  const int u = s.layout->segment_of(param).unit;
  return [&s, u](const Piece& piece, float* out) {
    s.updater->states().read(Column::master, u, piece.unit_offset, {out, static_cast<size_t>(piece.numel)});
  };
}

Source from_moment(EngineState& s, int param, Column moment) {
  const int u = s.layout->segment_of(param).unit;
  return [&s, u, moment](const Piece& piece, float* out) {
    s.updater->states().read(moment, u, piece.unit_offset, {out, static_cast<size_t>(piece.numel)});
  };
}

// A1: the plain sums times f.
Source from_gradient(EngineState& s, int param) {
  const int u = s.layout->segment_of(param).unit;
  const double f = s.gradient_factor();
  return [&s, u, f](const Piece& piece, float* out) {
    const Gradients& g = s.reducer->gradients();
    kernels::widen(g.at(u, piece.unit_offset), g.dtype(), out, piece.numel);
    for (int64_t i = 0; i < piece.numel; ++i) out[i] *= static_cast<float>(f);
  };
}

bool trainable(const EngineState& s, int param) {
  return s.parameters.specs[static_cast<size_t>(param)].trainable;
}

const at::Tensor& tensor(const EngineState& s, int param) {
  return s.parameters.tensors[static_cast<size_t>(param)];
}

Column moment_called(const EngineState& s, std::string_view state) {
  const std::vector<std::string> names = moment_names(*s.config.optimizer);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == state) return i == 0 ? Column::moment1 : Column::moment2;
  }
  throw UsageError(
      fmt::format("the optimizer has no state called {}; it has: {}", state, fmt::join(names, ", ")));
}

// Runs `write(piece, value)` for every piece that this rank holds.
template <typename Write>
void scatter(const EngineState& s, int param, bool replicated, const at::Tensor& value, const Write& write) {
  for (int r = 0; r < s.comm.size(); ++r) {
    if (!replicated && r != s.comm.rank()) continue;
    for (const Piece& piece : pieces_of(s, param, r)) {
      write(piece, value.const_data_ptr<float>() + piece.param_offset);
    }
  }
}

void require_window(const EngineState& s, const char* what) {
  if (s.reducer->backwards() == 0 && !s.reducer->in_backward()) {
    throw UsageError(fmt::format("{}: gradients exist between backward() and step() only", what));
  }
}

}  // namespace

at::Tensor Engine::full_param(std::string_view name) {
  EngineState& s = *state_;
  const int param = s.find(name);
  const c10::AutoGradMode no_grad(false);
  at::Tensor out = like(tensor(s, param));
  if (!trainable(s, param)) {
    const int u = s.layout->segment_of(param).unit;
    s.pager->pin(u, Mode::no_grad);
    out.copy_(tensor(s, param).detach());
    s.pager->unpin(u);
    return out;
  }
  collect(s, param, s.updater->replicated(), from_master(s, param), out.mutable_data_ptr<float>());
  return out;
}

std::optional<at::Tensor> Engine::full_grad(std::string_view name) {
  EngineState& s = *state_;
  const int param = s.find(name);
  if (!trainable(s, param)) return std::nullopt;
  require_window(s, "full_grad");
  const c10::AutoGradMode no_grad(false);
  at::Tensor out = like(tensor(s, param));
  float* data = out.mutable_data_ptr<float>();
  const auto n = static_cast<size_t>(out.numel());
  std::memset(data, 0, n * sizeof(float));
  if (s.placement.grads == Spread::sharded) {
    if (s.reducer->used(param)) collect(s, param, false, from_gradient(s, param), data);
    return out;
  }
  // Local sums of every rank, added in rank order (A2).
  if (s.reducer->contributed(param)) {
    for (int r = 0; r < s.comm.size(); ++r) {
      for (const Piece& piece : pieces_of(s, param, r))
        from_gradient(s, param)(piece, data + piece.param_offset);
    }
  }
  std::vector<float> all(n * static_cast<size_t>(s.comm.size()));
  s.comm.all_gather(data, all.data(), n * sizeof(float), fmt::format("gradient of {}", name));
  for (size_t i = 0; i < n; ++i) {
    data[i] = all[i];
    for (int r = 1; r < s.comm.size(); ++r) data[i] += all[static_cast<size_t>(r) * n + i];
  }
  return out;
}

std::optional<at::Tensor> Engine::full_optimizer_state(std::string_view name, std::string_view state) {
  EngineState& s = *state_;
  const int param = s.find(name);
  const Column moment = moment_called(s, state);
  if (!trainable(s, param)) return std::nullopt;
  const c10::AutoGradMode no_grad(false);
  at::Tensor out = like(tensor(s, param));
  collect(s, param, s.updater->replicated(), from_moment(s, param, moment), out.mutable_data_ptr<float>());
  return out;
}

at::Tensor Engine::local_param(std::string_view name) {
  EngineState& s = *state_;
  const int param = s.find(name);
  if (trainable(s, param)) return collect_local(s, param, from_master(s, param));
  const at::Tensor whole = full_param(name);
  return collect_local(s, param, [&](const Piece& piece, float* out) {
    std::memcpy(out, whole.const_data_ptr<float>() + piece.param_offset,
                static_cast<size_t>(piece.numel) * sizeof(float));
  });
}

std::optional<at::Tensor> Engine::local_grad(std::string_view name) {
  EngineState& s = *state_;
  const int param = s.find(name);
  if (!trainable(s, param)) return std::nullopt;
  require_window(s, "local_grad");
  if (!s.reducer->contributed(param)) return collect_local(s, param, [](const Piece&, float*) {});
  return collect_local(s, param, from_gradient(s, param));
}

std::optional<at::Tensor> Engine::local_optimizer_state(std::string_view name, std::string_view state) {
  EngineState& s = *state_;
  const int param = s.find(name);
  const Column moment = moment_called(s, state);
  if (!trainable(s, param)) return std::nullopt;
  return collect_local(s, param, from_moment(s, param, moment));
}

void Engine::set_full_param(std::string_view name, const at::Tensor& value) {
  EngineState& s = *state_;
  const int param = s.find(name);
  const c10::AutoGradMode no_grad(false);
  s.write_param(param, ordered(std::string(name), tensor(s, param), value));
}

void Engine::set_full_grad(std::string_view name, const at::Tensor& value) {
  EngineState& s = *state_;
  const int param = s.find(name);
  if (!trainable(s, param)) throw UsageError(fmt::format("set_full_grad: parameter {} is frozen", name));
  const c10::AutoGradMode no_grad(false);
  at::Tensor sum = ordered(std::string(name), tensor(s, param), value);
  sum.mul_(1.0 / s.gradient_factor());
  s.reducer->overwrite(param, sum.const_data_ptr<float>());
}

void Engine::set_full_optimizer_state(std::string_view name, std::string_view state,
                                      const at::Tensor& value) {
  EngineState& s = *state_;
  const int param = s.find(name);
  const Column moment = moment_called(s, state);
  if (!trainable(s, param))
    throw UsageError(fmt::format("set_full_optimizer_state: parameter {} is frozen", name));
  const c10::AutoGradMode no_grad(false);
  const int u = s.layout->segment_of(param).unit;
  scatter(s, param, s.updater->replicated(), ordered(std::string(name), tensor(s, param), value),
          [&](const Piece& piece, const float* from) {
            s.updater->states().write(moment, u, piece.unit_offset, {from, static_cast<size_t>(piece.numel)});
          });
}

// Masters and published values of one parameter become `value` (fp32, in memory order) on every rank;
// collective.
void EngineState::write_param(int param, const at::Tensor& value) {
  require_usable();
  const int u = layout->segment_of(param).unit;
  const DType dtype = layout->unit(u).dtype;
  UnitStore& store = pager->store();
  const bool whole = store.whole(u) != nullptr;
  comm.barrier("write a parameter");  // nobody reads it any more
  if (trainable(*this, param)) {
    scatter(*this, param, updater->replicated(), value, [&](const Piece& piece, const float* from) {
      updater->states().write(Column::master, u, piece.unit_offset, {from, static_cast<size_t>(piece.numel)});
    });
  }
  std::vector<std::byte> narrowed;
  scatter(*this, param, whole, value, [&](const Piece& piece, const float* from) {
    if (whole) {
      kernels::narrow(from, store.whole(u) + piece.unit_offset * size_of(dtype), dtype, piece.numel);
      return;
    }
    narrowed.resize(static_cast<size_t>(piece.numel * size_of(dtype)));
    kernels::narrow(from, narrowed.data(), dtype, piece.numel);
    store.write_slice(u, (piece.unit_offset - layout->slice(u, comm.rank()).begin) * size_of(dtype),
                      narrowed);
  });
  store.refresh(u);
  tensor(*this, param).unsafeGetTensorImpl()->bump_version();
}

std::vector<std::string> Engine::optimizer_state_names() const {
  return moment_names(*state_->config.optimizer);
}

int64_t Engine::param_step(std::string_view name) const {
  return state_->updater->step(state_->find(name));
}

}  // namespace aliquot
