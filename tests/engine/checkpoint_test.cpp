// Activation checkpointing by itself: plain autograd, no engine.
#include "aliquot/engine/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <thread>

#include "tests/support/formula.h"
#include "tests/support/live_bytes.h"

namespace aliquot::test {
namespace {

using torch::autograd::variable_list;

at::Tensor leaf(at::IntArrayRef shape, uint64_t salt) {
  return values(shape, salt, 1.0).set_requires_grad(true);
}

void seed(uint64_t value) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(value);
}

at::Tensor random_state() {
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  return generator.get_state();
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const RecomputeError& e) {
    return e.what();
  }
  return "no RecomputeError";
}

constexpr int64_t kMatrix = int64_t{64} * 64 * 4;  // bytes of fp32 [64, 64]

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A deep function of one input and a weight that it uses again and again; draws where p > 0.
at::Tensor deep(at::Tensor x, const at::Tensor& w, int layers, double p = 0) {
  for (int i = 0; i < layers; ++i) x = at::dropout(at::linear(x, w).tanh().exp(), p, true).sigmoid();
  return x;
}

struct Gradients {
  at::Tensor y, x, w, random;
  bool operator==(const Gradients& o) const {
    return y.equal(o.y) && x.equal(o.x) && w.equal(o.w) && random.equal(o.random);
  }
};

// y and the gradients of `run(x, w)`, and where the generator stands afterwards.
template <class Run>
Gradients gradients_of(Run run) {
  at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
  seed(7);
  const at::Tensor y = run(x, w);
  (y * values(y.sizes(), 3)).sum().backward();
  return {y.detach(), x.grad(), w.grad(), random_state()};
}

TEST(Checkpoint, F10_DropoutGetsTheSameGradientsBitByBit) {
  const auto draws_after = [](const at::Tensor& y) { return at::dropout(y, 0.5, true); };
  const Gradients plain =
      gradients_of([&](const at::Tensor& x, const at::Tensor& w) { return draws_after(deep(x, w, 3, 0.5)); });
  const Gradients checkpointed = gradients_of([&](const at::Tensor& x, const at::Tensor& w) {
    return draws_after(checkpoint([&w](const at::Tensor& in) { return deep(in, w, 3, 0.5); }, x));
  });
  EXPECT_EQ(plain, checkpointed);
  const Gradients redrawn = gradients_of([&](const at::Tensor& x, const at::Tensor& w) {
    return draws_after(checkpoint(
        CheckpointOptions{.preserve_rng_state = false},
        [&w](const at::Tensor& in) { return deep(in, w, 3, 0.5); }, x));
  });
  EXPECT_FALSE(plain.w.equal(redrawn.w)) << "the comparison above sees other masks";
}

TEST(Checkpoint, KeepsTheInputsAlone) {
  at::Tensor w = leaf({64, 64}, 1);
  const at::Tensor x = values({64, 64}, 2);
  const auto fn = [&w](const at::Tensor& in) { return deep(in, w, 20); };
  const LiveBytes bytes;
  at::Tensor y = fn(x);
  EXPECT_GE(bytes.now(), 60 * kMatrix);
  y.reset();
  ASSERT_EQ(bytes.now(), 0);
  y = checkpoint(fn, x);
  EXPECT_EQ(bytes.now(), kMatrix) << "the output";
  y.sum().backward();
  w.mutable_grad().reset();
  y.reset();
  EXPECT_EQ(bytes.now(), 0);
}

TEST(Checkpoint, PeakFallsWithSegments) {
  const auto peak = [](bool checkpointed) {
    at::Tensor w = leaf({64, 64}, 1), x = leaf({64, 64}, 2);
    const LiveBytes bytes;
    at::Tensor y = x;
    for (int i = 0; i < 8; ++i) {
      const auto fn = [&w](const at::Tensor& in) { return deep(in, w, 4); };
      y = checkpointed ? checkpoint(fn, y) : fn(y);
    }
    y.sum().backward();
    return bytes.peak();
  };
  EXPECT_LT(peak(true), peak(false) / 3);
}

TEST(Checkpoint, AnyNumberAndKindOfArgumentsAndResults) {
  struct Options {
    double factor;
    std::string name;
  };
  const at::Tensor undefined;
  const auto fn = [](const at::Tensor& a, const std::vector<at::Tensor>& list,
                     std::optional<at::Tensor> maybe, const std::optional<at::Tensor>& none,
                     const at::Tensor& index, const at::Tensor& nothing, int n, const char* text, bool flag,
                     const Options& options) {
    EXPECT_FALSE(none.has_value());
    EXPECT_FALSE(nothing.defined());
    EXPECT_TRUE(flag);
    EXPECT_EQ(options.name, text);
    const at::Tensor sum = (a * list[0] + list[1].exp() * *maybe) * n * options.factor;
    return std::tuple(sum, std::vector<at::Tensor>{sum.index_select(0, index).tanh(), list[1].sin()}, n + 1);
  };
  const auto run = [&](bool checkpointed) {
    std::vector<at::Tensor> leaves;
    for (uint64_t i = 1; i <= 4; ++i) leaves.push_back(leaf({5, 3}, i));
    const std::vector<at::Tensor> list{leaves[1], leaves[2]};
    const std::optional<at::Tensor> maybe = leaves[3], none;
    const at::Tensor index = integers({4}, 5, 5);
    const Options options{1.5, "options"};
    const auto [sum, more, n] =
        checkpointed
            ? checkpoint(fn, leaves[0], list, maybe, none, index, undefined, 2, "options", true, options)
            : fn(leaves[0], list, maybe, none, index, undefined, 2, "options", true, options);
    EXPECT_EQ(n, 3);
    (sum.sum() + more[0].sum() * 2 + more[1].sum() * 3).backward();
    std::vector<at::Tensor> out{sum.detach(), more[0].detach(), more[1].detach()};
    for (const at::Tensor& l : leaves) out.push_back(l.grad());
    return out;
  };
  const auto plain = run(false), checkpointed = run(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(checkpointed[i])) << i;
}

TEST(Checkpoint, InputsThatNeedNoGradient) {
  at::Tensor w = leaf({8, 8}, 1);
  const at::Tensor x = values({4, 8}, 2);
  checkpoint([&w](const at::Tensor& in) { return deep(in, w, 2); }, x).sum().backward();
  const at::Tensor grad = w.grad();
  w.mutable_grad().reset();
  deep(x, w, 2).sum().backward();
  EXPECT_TRUE(w.grad().equal(grad));
  EXPECT_FALSE(checkpoint([](const at::Tensor& in) { return in.exp(); }, x).requires_grad());
}

// A function of functions of functions, each of them checkpointed or none.
at::Tensor nested(bool checkpointed, double p, const at::Tensor& x, const at::Tensor& w, int levels) {
  const auto fn = [=](const at::Tensor& in) {
    if (levels == 0) return deep(in, w, 2, p);
    const at::Tensor middle = nested(checkpointed, p, in.sin(), w, levels - 1);
    return nested(checkpointed, p, middle.cos(), w, levels - 1).tanh();
  };
  return checkpointed ? checkpoint(CheckpointOptions{.name = std::to_string(levels)}, fn, x) : fn(x);
}

TEST(Checkpoint, Nests) {
  for (const int levels : {1, 2, 4}) {
    const auto run = [&](bool checkpointed) {
      return gradients_of(
          [&](const at::Tensor& x, const at::Tensor& w) { return nested(checkpointed, 0.3, x, w, levels); });
    };
    EXPECT_EQ(run(false), run(true)) << levels;
  }
}

TEST(Checkpoint, NestedOnesKeepOfEachLevelOnePath) {
  const auto peak = [](bool checkpointed) {
    const at::Tensor w = leaf({64, 64}, 1), x = leaf({64, 64}, 2);
    const LiveBytes bytes;
    nested(checkpointed, 0, x, w, 4).sum().backward();
    return bytes.peak();
  };
  EXPECT_LT(peak(true), peak(false) / 4);
}

TEST(Checkpoint, TheInputOfANestedOneIsForgottenToo) {
  at::Tensor w = leaf({64, 64}, 1);
  const at::Tensor x = values({64, 64}, 2);
  const auto inner = [w](const at::Tensor& in) { return deep(in, w, 2); };
  const LiveBytes bytes;
  const at::Tensor y = checkpoint(
      [&inner](const at::Tensor& in) { return checkpoint(inner, checkpoint(inner, checkpoint(inner, in))); },
      x);
  EXPECT_EQ(bytes.now(), kMatrix) << "the output";
}

TEST(Checkpoint, TheGraphMayBeKept) {
  at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
  seed(5);
  int runs = 0;
  const at::Tensor loss = checkpoint(
                              [&](const at::Tensor& in) {
                                ++runs;
                                return deep(in, w, 3, 0.5);
                              },
                              x)
                              .sum();
  for (int i = 0; i < 3; ++i) loss.backward({}, /*retain_graph=*/i < 2);
  EXPECT_EQ(runs, 4);
  seed(5);
  at::Tensor once = leaf({8, 8}, 2);
  const at::Tensor plain = deep(x, once, 3, 0.5).sum();
  for (int i = 0; i < 3; ++i) plain.backward({}, /*retain_graph=*/i < 2);
  EXPECT_TRUE(w.grad().equal(once.grad()));
  EXPECT_THROW(loss.backward(), c10::Error) << "the graph is gone, as without a checkpoint";
}

// One delivery a backward, as in a graph without checkpoints.
TEST(Checkpoint, AWeightUsedInsideAndOutside) {
  for (const bool checkpointed : {false, true}) {
    at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
    int deliveries = 0;
    w.register_hook([&](const at::Tensor&) { ++deliveries; });
    at::Tensor y = at::linear(x, w);
    const auto fn = [w](const at::Tensor& in) { return deep(in, w, 2); };
    for (int i = 0; i < 6; ++i) y = checkpointed ? checkpoint(fn, y) : fn(y);
    at::linear(y, w).sum().backward();
    EXPECT_EQ(deliveries, 1);
    static at::Tensor expected;
    if (checkpointed) {
      EXPECT_TRUE(w.grad().equal(expected));
    }
    expected = w.grad();
  }
}

TEST(Checkpoint, AnExceptionWhileItRunsAgainLeavesItUsable) {
  at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
  bool fails = false;
  const auto fn = [&](const at::Tensor& in) {
    const at::Tensor middle = deep(in, w, 2, 0.5);
    if (fails) throw std::runtime_error("no memory, say");
    return deep(middle, w, 2, 0.5);
  };
  seed(3);
  const at::Tensor loss = checkpoint(fn, x).sum();
  const at::Tensor state = random_state();
  fails = true;
  EXPECT_THROW(loss.backward({}, true), std::runtime_error);
  EXPECT_TRUE(random_state().equal(state));
  EXPECT_FALSE(at::linear(x, w).sum().grad_fn() == nullptr) << "autograd is as it was";
  fails = false;
  x.mutable_grad().reset();
  w.mutable_grad().reset();
  loss.backward();
  const at::Tensor grad = w.grad();
  w.mutable_grad().reset();
  seed(3);
  fn(x).sum().backward();
  EXPECT_TRUE(w.grad().equal(grad));
}

TEST(Checkpoint, AnExceptionInForwardPasses) {
  at::Tensor x = leaf({64}, 1);
  const LiveBytes bytes;
  EXPECT_THROW(checkpoint(
                   [](const at::Tensor& in) -> at::Tensor {
                     const at::Tensor y = in.exp();
                     throw std::runtime_error("no");
                   },
                   x),
               std::runtime_error);
  const at::Tensor y = x.exp();
  EXPECT_EQ(bytes.now(), 64 * 4) << "y; nothing of the checkpoint";
}

TEST(Checkpoint, WithoutAutogradItIsTheFunction) {
  at::Tensor w = leaf({8, 8}, 1);
  const at::Tensor x = values({4, 8}, 2), expected = deep(x, w, 3).detach();
  int runs = 0;
  const auto fn = [&](const at::Tensor& in) {
    ++runs;
    return deep(in, w, 3);
  };
  {
    const c10::AutoGradMode no_grad(false);
    const at::Tensor y = checkpoint(fn, x);
    EXPECT_TRUE(y.equal(expected));
    EXPECT_FALSE(y.requires_grad());
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(checkpoint(fn, x).equal(expected));
  }
  EXPECT_EQ(runs, 2);
}

TEST(Checkpoint, StopsWhenAllIsThere) {
  for (const bool early : {true, false}) {
    at::Tensor x = leaf({6, 8}, 1);
    int ends = 0;
    const at::Tensor y = checkpoint(
        CheckpointOptions{.early_stop = early},
        [&](const at::Tensor& in) {
          at::Tensor out = in.exp();
          ++ends;
          return out;
        },
        x);
    y.sum().backward();
    EXPECT_EQ(ends, early ? 1 : 2);
  }
}

TEST(Checkpoint, OtherTensorsTheSecondTimeAreAnErrorThatNamesThem) {
  const auto differing = [](bool early_stop, const std::function<at::Tensor(const at::Tensor&, bool)>& fn) {
    return message_of([&] {
      at::Tensor x = leaf({6, 8}, 1);
      bool again = false;
      const at::Tensor y = checkpoint(
          CheckpointOptions{.name = "h.3", .early_stop = early_stop},
          [&](const at::Tensor& in) { return fn(in, again); }, x);
      again = true;
      y.sum().backward();
    });
  };
  const std::string fewer = differing(
      true, [](const at::Tensor& x, bool again) { return again ? x.exp() + x : x.exp().exp() + x; });
  EXPECT_TRUE(contains(fewer, "checkpoint h.3: computed again for backward, saved 1 tensors, 2 in forward"))
      << fewer;
  const std::string more =
      differing(false, [](const at::Tensor& x, bool again) { return again ? x.exp().exp() : x.exp(); });
  EXPECT_TRUE(contains(more, "saved 2 tensors, 1 in forward")) << more;
  const std::string shape = differing(
      true, [](const at::Tensor& x, bool again) { return (again ? x.slice(0, 0, 3) : x).exp().sum(); });
  EXPECT_TRUE(contains(shape, "saved tensor 0 is [3, 8] Float on cpu, [6, 8] Float on cpu in forward"))
      << shape;
  const std::string dtype = differing(
      true, [](const at::Tensor& x, bool again) { return x.to(again ? at::kDouble : at::kFloat).exp(); });
  EXPECT_TRUE(contains(dtype, "is [6, 8] Double on cpu, [6, 8] Float on cpu in forward")) << dtype;
}

TEST(Checkpoint, ChangesInPlaceAreErrors) {
  const c10::AutoGradMode grad(true);
  const auto change = [](at::Tensor& t) {
    const c10::AutoGradMode no_grad(false);
    t.mul_(2);
  };
  at::Tensor x = leaf({4, 8}, 1), w = leaf({8, 8}, 2);
  const auto fn = [&w](const at::Tensor& in) { return deep(in, w, 2); };
  at::Tensor loss = checkpoint(fn, x).sum();
  change(x);
  EXPECT_THROW(loss.backward(), c10::Error) << "autograd's own: modified by an inplace operation";

  loss = checkpoint(fn, x).sum();
  change(w);
  const std::string text = message_of([&] { loss.backward(); });
  EXPECT_TRUE(contains(text, "[8, 8] Float on cpu, is at version 2, 1 in forward: it was changed in place") ||
              contains(text, "[8, 8] Float on cpu, is at version 1, 0 in forward: it was changed in place"))
      << text;

  loss = checkpoint(
             CheckpointOptions{.early_stop = false},
             [](const at::Tensor& in) {
               at::Tensor y = in.exp();
               at::Tensor z = y.sin();
               y.add_(1);
               return z;
             },
             x)
             .sum();
  EXPECT_TRUE(
      contains(message_of([&] { loss.backward(); }), "is changed in place after an operation has saved it"));
}

TEST(Checkpoint, RunsABackwardOfItsOwn) {
  const auto fn = [](const at::Tensor& in) {  // a gradient penalty
    at::Tensor x = in.requires_grad() ? in : in.detach().set_requires_grad(true);
    const at::Tensor energy = x.tanh().exp().sum();
    const at::Tensor slope = torch::autograd::grad({energy}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    return energy + slope.square().sum() * x.sin();
  };
  at::Tensor x = leaf({7}, 1);
  fn(x).sum().backward();
  const at::Tensor expected = x.grad();
  x.mutable_grad().reset();
  checkpoint(fn, x).sum().backward();
  EXPECT_TRUE(x.grad().equal(expected));
}

TEST(Checkpoint, SecondDerivatives) {
  const auto second = [](bool checkpointed) {
    at::Tensor x = leaf({5, 8}, 1), w = leaf({8, 8}, 2);
    const auto fn = [w](const at::Tensor& in) { return deep(in, w, 2); };
    const at::Tensor y = checkpointed ? checkpoint(fn, x) : fn(x);
    const at::Tensor slope =
        torch::autograd::grad({y.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    slope.square().sum().backward();
    return std::pair(x.grad(), w.grad());
  };
  const auto plain = second(false), checkpointed = second(true);
  EXPECT_TRUE(plain.first.equal(checkpointed.first));
  EXPECT_TRUE(plain.second.equal(checkpointed.second));
}

TEST(Checkpoint, WhatABackwardDoesNotAskForGoesWithIt) {
  at::Tensor x = leaf({64, 64}, 1), w = leaf({64, 64}, 2);
  const LiveBytes bytes;
  const auto fn = [w](const at::Tensor& in) { return std::pair(deep(in, w, 4), in.tanh().exp()); };
  const auto [first, second] = checkpoint(fn, x);
  const int64_t outputs = bytes.now();
  for (int i = 0; i < 3; ++i) {
    // Of the part that leads to `second` alone.
    EXPECT_TRUE(torch::autograd::grad({second.sum()}, {x}, {}, /*retain_graph=*/true)[0].defined());
    EXPECT_EQ(bytes.now(), outputs);
  }
}

struct AsksTwice : torch::autograd::Function<AsksTwice> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(torch::autograd::AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor a = ctx->get_saved_variables()[0], b = ctx->get_saved_variables()[0];
    EXPECT_TRUE(a.equal(b));
    return {grads[0] * (a + b)};
  }
};

TEST(Checkpoint, FunctionsOfTheUsersThatAskTwice) {
  at::Tensor x = leaf({6}, 1);
  seed(1);
  checkpoint([](const at::Tensor& in) { return AsksTwice::apply(at::dropout(in, 0.5, true).exp()); }, x)
      .sum()
      .backward();
  const at::Tensor grad = x.grad();
  x.mutable_grad().reset();
  seed(1);
  AsksTwice::apply(at::dropout(x, 0.5, true).exp()).sum().backward();
  EXPECT_TRUE(x.grad().equal(grad));
}

TEST(Checkpoint, ASavedTensorReadOutsideOfBackward) {
  at::Tensor x = leaf({6}, 1);
  std::optional<torch::autograd::SavedVariable> saved;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& in) {
        const at::Tensor out = in.exp();
        if (!saved) {
          saved.emplace(out, /*is_output=*/false);
        } else {
          const torch::autograd::SavedVariable again(out, false);
        }
        return out.sin();
      },
      x);
  EXPECT_TRUE(saved->unpack().equal(x.exp()));
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(x.exp().cos() * x.exp()));
}

TEST(Checkpoint, NothingOutlivesTheGraph) {
  const auto witness = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = witness;
  at::Tensor x = leaf({6}, 1);
  const auto make = [&] {
    return checkpoint([held = witness](const at::Tensor& in) { return in.exp().sin(); }, x);
  };
  EXPECT_EQ(alive.use_count(), 1);
  at::Tensor y = make();
  EXPECT_EQ(alive.use_count(), 2);
  y.reset();
  EXPECT_EQ(alive.use_count(), 1) << "a graph that is dropped";
  y = make();
  y.sum().backward();
  EXPECT_EQ(alive.use_count(), 1) << "a graph that has gone backward";
}

TEST(Checkpoint, Threads) {
  const auto run = [](bool checkpointed) {
    at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
    for (int step = 0; step < 20; ++step) {
      const auto fn = [&w](const at::Tensor& in) { return deep(in, w, 3); };
      at::Tensor y = x;
      for (int i = 0; i < 3; ++i) y = checkpointed ? checkpoint(fn, y) : fn(y);
      y.sum().backward();
    }
    return w.grad();
  };
  const at::Tensor expected = run(false);
  std::vector<at::Tensor> grads(4);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (at::Tensor& grad : grads) threads.emplace_back([&] { grad = run(true); });
  for (std::thread& t : threads) t.join();
  for (const at::Tensor& grad : grads) EXPECT_TRUE(grad.equal(expected));
}

// Graphs kept, many threads going backward through one.
TEST(Checkpoint, ThreadsThatShareAGraph) {
  at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
  const at::Tensor loss = checkpoint([w](const at::Tensor& in) { return deep(in, w, 4); }, x).sum();
  const at::Tensor expected = torch::autograd::grad({deep(x, w, 4).sum()}, {w})[0];
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true)[0].equal(expected));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Checkpoint, ADrawlessFunctionLeavesTheGeneratorAlone) {
  at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
  int runs = 0;
  at::Tensor seen;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& in) {
        if (++runs == 2) seen = random_state();
        return deep(in, w, 2);
      },
      x);
  const at::Tensor moved = at::rand_like(x), before = random_state();
  y.sum().backward();
  EXPECT_TRUE(seen.equal(before));
}

TEST(Checkpoint, AutocastIsAsInForward) {
  const auto run = [](bool checkpointed) {
    at::Tensor x = leaf({6, 8}, 1), w = leaf({8, 8}, 2);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto fn = [w](const at::Tensor& in) { return deep(in, w, 2); };
    const at::Tensor y = checkpointed ? checkpoint(fn, x) : fn(x);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.to(at::kFloat).sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return w.grad();
  };
  EXPECT_TRUE(run(false).equal(run(true)));
}

TEST(Checkpoint, SwitchedOffHooksAreSaid) {
  at::Tensor x = leaf({3}, 1);
  at::SavedTensorDefaultHooks::disable("not in this test");
  EXPECT_THROW(checkpoint([](const at::Tensor& in) { return in.exp(); }, x), UsageError);
  at::SavedTensorDefaultHooks::enable();
}

struct LaterEngine final : torch::autograd::Engine {
  LaterEngine() = default;
};

// As when Python's engine takes the place of the C++ one in a process that has used checkpoints before.
TEST(Checkpoint, AnEngineThatComesLater) {
  static auto* const later = new LaterEngine;
  at::Tensor x = leaf({64, 64}, 1);
  const auto fn = [](const at::Tensor& in) { return in.exp().sin().tanh(); };
  checkpoint(fn, x).sum().backward();
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return *later; });
  const LiveBytes bytes;
  const at::Tensor y = checkpoint(fn, x);
  EXPECT_EQ(bytes.now(), kMatrix) << "the output";
  const at::Tensor before = x.grad().clone();
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(before * 2));
}

}  // namespace
}  // namespace aliquot::test
