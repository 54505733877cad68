#include "aliquot/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "aliquot/error.h"

namespace aliquot {
namespace {

void require_beta(const char* name, double beta) {
  if (beta >= 0 && beta < 1) return;
  throw UsageError(
      fmt::format("{} is {}, expected 0 <= {} < 1: see the optimizer's betas and, with OneCycle, "
                  "scheduler.params.decay_mom_rate, which raises beta1 at every step after the cycle",
                  name, beta, name));
}

kernels::Hyper decayed_lr(const OptimizerConfig& optimizer, kernels::Hyper hyper) {
  hyper.lr /= 1 + static_cast<double>(hyper.step - 1) * optimizer.lr_decay;
  return hyper;
}

}  // namespace

std::vector<std::string> moment_names(const OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
    case OptimizerKind::lamb:
      return {"exp_avg", "exp_avg_sq"};
    case OptimizerKind::lion:
      return {"exp_avg"};
    case OptimizerKind::adagrad:
      return {"sum"};
    case OptimizerKind::sgd:
      if (optimizer.momentum != 0) return {"momentum_buffer"};
      return {};
  }
  throw InternalError("moment_names: unknown optimizer");
}

int moment_count(const OptimizerConfig& optimizer) {
  return static_cast<int>(moment_names(optimizer).size());
}

float initial_moment(const OptimizerConfig& optimizer) {
  const bool accumulates = optimizer.kind == OptimizerKind::adagrad;
  return accumulates ? static_cast<float>(optimizer.initial_accumulator_value) : 0.0F;
}

bool has_betas(OptimizerKind kind) {
  return kind != OptimizerKind::sgd && kind != OptimizerKind::adagrad;
}

void update(const OptimizerConfig& optimizer, const kernels::Slice& slice, const kernels::Hyper& hyper) {
  if (has_betas(optimizer.kind)) {
    require_beta("beta1", hyper.beta1);
    require_beta("beta2", hyper.beta2);
  }
  switch (optimizer.kind) {
    case OptimizerKind::adam:
      return kernels::adam(slice, hyper);
    case OptimizerKind::adamw:
      return kernels::adamw(slice, hyper);
    case OptimizerKind::sgd:
      return kernels::sgd(slice, hyper);
    case OptimizerKind::lion:
      return kernels::lion(slice, hyper);
    case OptimizerKind::adagrad:
      return kernels::adagrad(slice, decayed_lr(optimizer, hyper));
    case OptimizerKind::lamb:
      throw InternalError("update: Lamb takes two passes, lamb_moments and lamb_apply");
  }
}

double lamb_trust_ratio(const OptimizerConfig& optimizer, kernels::LambNorms of_parameter) {
  const double param = std::sqrt(of_parameter.param);
  const double update = std::sqrt(of_parameter.update);
  if (param == 0 || update == 0) return 1;
  return std::clamp(param / update, optimizer.min_coeff, optimizer.max_coeff);
}

}  // namespace aliquot
