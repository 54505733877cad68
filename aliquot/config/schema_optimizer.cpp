// The optimizer block: names as DeepSpeed takes them, and the parameters of each.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

template <class T>
Store optimizer(T OptimizerConfig::*field) {
  return [=](Config& c, const Scalar& v) { assign((*c.optimizer).*field, v); };
}

void store_betas(Config& c, const Scalar& v) {
  if (const auto* betas = std::get_if<std::vector<double>>(&v)) {
    c.optimizer->beta1 = (*betas)[0];
    c.optimizer->beta2 = (*betas)[1];
  }
}

Key lr(std::string fallback = "1e-3") {
  return number("lr", std::move(fallback), "learning rate", optimizer(&OptimizerConfig::lr))
      .in(at_least(0))
      .or_auto();
}
Key betas() {
  return pair("betas", "[0.9, 0.999]", "decay of the moments", store_betas).in(fraction()).or_auto();
}
Key eps(std::string fallback = "1e-8") {
  return number("eps", std::move(fallback), "added to the root of the second moment",
                optimizer(&OptimizerConfig::eps))
      .in(at_least(0))
      .or_auto();
}
Key weight_decay(std::string fallback = "0") {
  return number("weight_decay", std::move(fallback), "weight decay",
                optimizer(&OptimizerConfig::weight_decay))
      .in(at_least(0))
      .or_auto();
}
Key bias_correction() {
  return boolean("bias_correction", "true", "divide the moments by 1 − βᵗ",
                 optimizer(&OptimizerConfig::bias_correction));
}
Key amsgrad() {
  return refused(boolean("amsgrad", "false"), "the AMSGrad variant", {false});
}
Key max_grad_norm() {
  return number("max_grad_norm", "none", "deprecated: accepted where it equals gradient_clipping")
      .in(at_least(0));
}

// Which loop torch runs, or what it can be traced by; the update is the same.
std::vector<Key> torch_flags() {
  const std::string why = "there is one fused kernel, with the same update";
  std::vector<Key> keys;
  for (const char* name : {"foreach", "fused", "capturable", "differentiable"}) {
    keys.push_back(no_effect(boolean(name, "false").or_null(), why));
  }
  keys.push_back(refused(boolean("maximize", "false"), "losses are minimised", {false}));
  return keys;
}

Section params(std::vector<std::string> types, std::vector<Key> keys) {
  keys.push_back(max_grad_norm());
  return {.path = "optimizer.params", .types = std::move(types), .keys = std::move(keys)};
}

Section with_torch_flags(Section s) {
  for (Key& key : torch_flags()) s.keys.push_back(std::move(key));
  return s;
}

Section adam() {
  const std::string kernel = "there is one kernel per optimizer, with the same update";
  return with_torch_flags(params(
      {"Adam", "AdamW"},
      {
          lr(),
          betas(),
          eps(),
          weight_decay("0; 0.01 for AdamW with torch_adam"),
          bias_correction(),
          boolean("adam_w_mode", "true",
                  "`Adam` decays weights as AdamW does; false: L2. `AdamW` is AdamW whatever it says"),
          boolean("torch_adam", "false", "torch's default of weight_decay; the update is the same"),
          amsgrad(),
          no_effect(boolean("set_grad_none", "true"), "gradients are always freed"),
          refused(boolean("fp32_optimizer_states", "true"), "optimizer states are fp32 for now", {true}),
      }));
}

Section sgd() {
  return with_torch_flags(params(
      {"SGD"}, {
                   lr(),
                   weight_decay(),
                   number("momentum", "0", "momentum", optimizer(&OptimizerConfig::momentum))
                       .in(at_least(0))
                       .or_auto(),
                   number("dampening", "0", "dampening of momentum", optimizer(&OptimizerConfig::dampening)),
                   boolean("nesterov", "false", "Nesterov's momentum; needs momentum and no dampening",
                           optimizer(&OptimizerConfig::nesterov)),
               }));
}

Section lion() {
  return params({"Lion"}, {lr(), betas(), weight_decay()});
}

Section adagrad() {
  return with_torch_flags(
      params({"Adagrad"}, {
                              lr("1e-2"),
                              eps("1e-10"),
                              weight_decay(),
                              number("lr_decay", "0", "step t uses lr / (1 + (t − 1) · lr_decay)",
                                     optimizer(&OptimizerConfig::lr_decay))
                                  .in(at_least(0)),
                              number("initial_accumulator_value", "0", "sum of squares before the first step",
                                     optimizer(&OptimizerConfig::initial_accumulator_value))
                                  .in(at_least(0)),
                              amsgrad(),
                          }));
}

Section lamb() {
  return params(
      {"Lamb"},
      {
          lr(),
          betas(),
          eps(),
          weight_decay(),
          bias_correction(),
          number("max_coeff", "10.0", "largest trust ratio", optimizer(&OptimizerConfig::max_coeff))
              .in(above(0)),
          number("min_coeff", "0.01", "smallest trust ratio", optimizer(&OptimizerConfig::min_coeff))
              .in(at_least(0)),
          boolean("eps_inside_sqrt", "false", "√(v + eps) instead of √v + eps",
                  optimizer(&OptimizerConfig::eps_inside_sqrt)),
          amsgrad(),
      });
}

struct Refused {
  const char* name;
  const char* why;
};

constexpr const char* kOneBit = "compressed communication is not there yet";
constexpr const char* kMup = "the mup package's learning rates are not there";
constexpr Refused kRefusedOptimizers[] = {
    {"OneBitAdam", kOneBit},
    {"ZeroOneAdam", kOneBit},
    {"OneBitLamb", kOneBit},
    {"MuAdam", kMup},
    {"MuAdamW", kMup},
    {"MuSGD", kMup},
    {"Muon", "optimizers that need whole matrices are not there yet"},
};
constexpr const char* kTorchOptimizers[] = {"Adadelta", "Adafactor", "Adamax",  "ASGD",  "LBFGS",
                                            "NAdam",    "RAdam",     "RMSprop", "Rprop", "SparseAdam"};

}  // namespace

std::optional<OptimizerKind> optimizer_named(const std::string& type) {
  if (type == "SGD") return OptimizerKind::sgd;
  const std::string name = lower(type);
  if (name == "adam") return OptimizerKind::adam;
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "lion") return OptimizerKind::lion;
  if (name == "adagrad") return OptimizerKind::adagrad;
  if (name == "lamb") return OptimizerKind::lamb;
  return std::nullopt;
}

std::string about_optimizer(const std::string& type) {
  const std::string known = "Adam, AdamW, SGD, Lion, Adagrad or Lamb";
  for (const Refused& r : kRefusedOptimizers) {
    if (lower(r.name) == lower(type)) return fmt::format("not supported: {}; expected {}", r.why, known);
  }
  for (const char* name : kTorchOptimizers) {
    if (type == name) return fmt::format("torch.optim.{} is not there; expected {}", name, known);
  }
  const std::string near = nearest(type, {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "Lamb"});
  return fmt::format("no such optimizer; expected {}{}", known,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

OptimizerConfig optimizer_defaults(OptimizerKind kind) {
  OptimizerConfig c;
  c.kind = kind;
  if (kind == OptimizerKind::adagrad) {
    c.lr = 1e-2;
    c.eps = 1e-10;
  }
  return c;
}

const Section& optimizer_params(OptimizerKind kind) {
  const char* type = kind == OptimizerKind::sgd       ? "SGD"
                     : kind == OptimizerKind::lion    ? "Lion"
                     : kind == OptimizerKind::adagrad ? "Adagrad"
                     : kind == OptimizerKind::lamb    ? "Lamb"
                                                      : "Adam";
  for (const Section& s : sections()) {
    if (s.path == "optimizer.params" && std::ranges::find(s.types, type) != s.types.end()) return s;
  }
  return section("optimizer.params");
}

std::vector<Section> optimizer_sections() {
  Section block_section{.path = "optimizer", .types = {}, .keys = {}};
  block_section.keys = {
      text("type", "needed", "Adam, AdamW, Lion, Adagrad, Lamb in any case; SGD"),
      block("params", "parameters of that optimizer"),
      no_effect(boolean("legacy_fusion", "false"), "there is one implementation of 16-bit training"),
  };
  return {std::move(block_section), adam(), sgd(), lion(), adagrad(), lamb()};
}

}  // namespace aliquot::schema
