// Every kernel gives the same bits on every SIMD target of this machine, at any alignment and cut anywhere.
#include <cstdlib>
#include <functional>

#include "aliquot/error.h"
#include "testing.h"

namespace aliquot {
namespace {

using kernels::Hyper;
using kernels::Slice;
using testing::OnTarget;

// Everything an update reads and writes. Elements lie `offset` elements behind the start of their
// allocations.
struct State {
  int64_t n, offset;
  DType grad_dtype, publish_dtype;
  std::vector<float> master, moment1, moment2;
  std::vector<std::byte> grad, publish;
  kernels::LambNorms norms;

  Slice slice(int64_t begin, int64_t count) {
    const auto at = static_cast<size_t>(offset + begin);
    Slice s;
    s.master = master.data() + at;
    s.grad = grad.data() + at * static_cast<size_t>(size_of(grad_dtype));
    s.grad_dtype = grad_dtype;
    s.factor = 0.37F;
    s.moment1 = moment1.data() + at;
    s.moment2 = moment2.data() + at;
    if (publish_dtype != DType::fp32) s.publish = publish.data() + 2 * at;
    s.publish_dtype = publish_dtype;
    s.n = count;
    return s;
  }

  std::vector<float> published() const {
    std::vector<float> values(publish.size() / 2);
    kernels::widen(publish.data(), publish_dtype == DType::fp32 ? DType::bf16 : publish_dtype, values.data(),
                   static_cast<int64_t>(values.size()));
    return values;
  }
};

State make_state(std::mt19937_64& random, int64_t n, int64_t offset, DType grad_dtype, DType publish_dtype,
                 bool wild) {
  const int64_t room = n + offset;
  const auto draw = [&](float scale) {
    return wild ? testing::any_floats(random, room) : testing::normal(random, room, scale);
  };
  State state{n, offset, grad_dtype, publish_dtype, draw(1), draw(0.1F), draw(0.01F), {}, {}, {}};
  for (float& v : state.moment2) v = std::abs(v);
  state.grad = testing::in_dtype(draw(0.3F), grad_dtype);
  state.publish.resize(2 * static_cast<size_t>(room));
  return state;
}

using Kernel = std::function<void(State&, int64_t begin, int64_t count, const Hyper&)>;

struct Named {
  const char* name;
  Kernel run;
};

Kernel whole(void (*kernel)(const Slice&, const Hyper&)) {
  return
      [kernel](State& s, int64_t begin, int64_t count, const Hyper& h) { kernel(s.slice(begin, count), h); };
}

Kernel lamb(bool eps_inside_sqrt) {
  return [eps_inside_sqrt](State& s, int64_t begin, int64_t count, const Hyper& h) {
    const Slice slice = s.slice(begin, count);
    const kernels::LambNorms norms = kernels::lamb_moments(slice, h, eps_inside_sqrt);
    s.norms.param += norms.param;
    s.norms.update += norms.update;
    kernels::lamb_apply(slice, h, eps_inside_sqrt, 0.7);
  };
}

const std::vector<Named>& all_kernels() {
  static const std::vector<Named> kernels{
      {"adam", whole(kernels::adam)},  {"adamw", whole(kernels::adamw)},     {"sgd", whole(kernels::sgd)},
      {"lion", whole(kernels::lion)},  {"adagrad", whole(kernels::adagrad)}, {"lamb", lamb(false)},
      {"lamb, eps inside", lamb(true)}};
  return kernels;
}

Hyper hyper(double momentum, bool nesterov) {
  return {.lr = 3e-3,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .momentum = momentum,
          .dampening = nesterov ? 0 : 0.1,
          .nesterov = nesterov,
          .step = 7};
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void expect_same(const State& a, const State& b, const std::string& what) {
  EXPECT_TRUE(testing::same(a.master, b.master)) << what << ": master";
  EXPECT_TRUE(testing::same(a.moment1, b.moment1)) << what << ": moment1";
  EXPECT_TRUE(testing::same(a.moment2, b.moment2)) << what << ": moment2";
  EXPECT_TRUE(testing::same(a.published(), b.published())) << what << ": publish";
  EXPECT_TRUE(same(a.norms.param, b.norms.param) && same(a.norms.update, b.norms.update))
      << what << ": norms";
}

State after(const State& before, const Kernel& kernel, const Hyper& h, const char* target) {
  const OnTarget scope(target);
  State state = before;
  kernel(state, 0, state.n, h);
  return state;
}

TEST(Targets, AllGiveTheSameBits) {
  auto random = testing::seeded(31);
  std::vector<int64_t> sizes{1023, 1024, 1025, 4095, 4096, 4097};
  for (int64_t n = 0; n <= 70; ++n) sizes.push_back(n);
  for (const int64_t n : sizes) {
    for (const DType grad : testing::kDTypes) {
      for (const DType publish : testing::kDTypes) {
        const State before = make_state(random, n, 0, grad, publish, n % 2 == 0);
        for (const Named& kernel : all_kernels()) {
          const Hyper h = hyper(n % 3 == 0 ? 0 : 0.9, n % 3 == 1);
          const State scalar = after(before, kernel.run, h, "SCALAR");
          for (const char* target : kernels::available_targets()) {
            expect_same(after(before, kernel.run, h, target), scalar,
                        std::string(kernel.name) + " on " + target + ", n " + std::to_string(n));
          }
        }
      }
    }
  }
}

TEST(Targets, AlignmentChangesNothing) {
  auto random = testing::seeded(32);
  for (const char* target : kernels::available_targets()) {
    for (const int64_t offset : {1, 3, 7, 13}) {
      const State there = make_state(random, 1100, offset, DType::bf16, DType::fp16, false);
      State here = there;
      here.offset = 0;
      for (auto* values : {&here.master, &here.moment1, &here.moment2})
        values->erase(values->begin(), values->begin() + offset);
      for (auto* bytes : {&here.grad, &here.publish})
        bytes->erase(bytes->begin(), bytes->begin() + 2 * offset);
      for (const Named& kernel : all_kernels()) {
        State shifted = after(there, kernel.run, hyper(0.9, false), target);
        for (auto* values : {&shifted.master, &shifted.moment1, &shifted.moment2}) {
          values->erase(values->begin(), values->begin() + offset);
        }
        shifted.publish.erase(shifted.publish.begin(), shifted.publish.begin() + 2 * offset);
        expect_same(after(here, kernel.run, hyper(0.9, false), target), shifted, kernel.name);
      }
    }
  }
}

// Tiles, threads and sub-groups cut a piece anywhere (E3); Lamb's norms only at blocks.
TEST(Targets, ACutPieceIsUpdatedAsAWholeOne) {
  auto random = testing::seeded(33);
  const State before = make_state(random, 9000, 0, DType::fp32, DType::bf16, false);
  for (const Named& kernel : all_kernels()) {
    const bool lamb = std::string(kernel.name).starts_with("lamb");
    State cut = before;
    for (int64_t begin = 0; begin < cut.n;) {
      const int64_t step = lamb ? 4096 : 1 + static_cast<int64_t>(random() % 700);
      const int64_t count = std::min(step, cut.n - begin);
      kernel.run(cut, begin, count, hyper(0.9, true));
      begin += count;
    }
    expect_same(cut, after(before, kernel.run, hyper(0.9, true), kernels::current_target()), kernel.name);
  }
}

TEST(Targets, NothingBesideThePieceIsTouched) {
  auto random = testing::seeded(34);
  for (const char* target : kernels::available_targets()) {
    const OnTarget scope(target);
    for (const Named& kernel : all_kernels()) {
      const State before = make_state(random, 40, 0, DType::fp16, DType::bf16, false);
      State state = before;
      kernel.run(state, 5, 29, hyper(0.9, false));
      for (const size_t i : {0, 4, 34, 39}) {
        EXPECT_EQ(state.master[i], before.master[i]) << kernel.name;
        EXPECT_EQ(state.moment1[i], before.moment1[i]) << kernel.name;
        EXPECT_EQ(state.moment2[i], before.moment2[i]) << kernel.name;
        EXPECT_EQ(state.publish[2 * i], before.publish[2 * i]) << kernel.name;
      }
    }
  }
}

TEST(Targets, ConversionsAndSumsToo) {
  auto random = testing::seeded(35);
  for (const int64_t n : {0, 1, 7, 33, 70, 4095, 4096, 4097}) {
    for (const DType dtype : testing::kDTypes) {
      const std::vector<float> x = testing::any_floats(random, n), y = testing::normal(random, n);
      std::vector<std::byte> first_narrow, first_sum;
      std::optional<double> first_squares;
      for (const char* target : kernels::available_targets()) {
        const OnTarget scope(target);
        const std::vector<std::byte> narrow = testing::in_dtype(x, dtype), b = testing::in_dtype(y, dtype);
        std::vector<std::byte> sum(narrow.size());
        const void* inputs[] = {b.data(), nullptr, b.data()};
        kernels::reduce(inputs, dtype, sum.data(), dtype, false, n);
        const double squares = kernels::sum_of_squares(b.data(), dtype, n);
        if (!first_squares) {
          first_narrow = narrow, first_sum = sum, first_squares = squares;
        }
        EXPECT_EQ(narrow, first_narrow) << target;
        EXPECT_EQ(sum, first_sum) << target;
        EXPECT_EQ(squares, *first_squares) << target;
      }
    }
  }
}

TEST(Targets, ScalarIsAlwaysThereAndNamesAreForgiving) {
  const std::string before = kernels::current_target();
  EXPECT_STREQ(kernels::available_targets().back(), "SCALAR");
  kernels::use_target("scalar");
  EXPECT_STREQ(kernels::current_target(), "SCALAR");
  kernels::use_target(before.c_str());
}

TEST(Targets, AMissingOneIsNamedWithThoseThereAre) {
  const std::string before = kernels::current_target();
  try {
    kernels::use_target("mmx");
    FAIL() << "accepted";
  } catch (const UsageError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("\"mmx\""), std::string::npos) << text;
    EXPECT_NE(text.find("SCALAR"), std::string::npos) << text;
  }
  EXPECT_EQ(kernels::current_target(), before);
}

// Each statement runs in a process of its own, in which no kernel has run yet.
TEST(TargetsDeathTest, TheEnvironmentPinsTheTarget) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("ALIQUOT_SIMD", "Scalar", 1);
        const float x = 1;
        kernels::sum_of_squares(&x, DType::fp32, 1);
        std::fputs(kernels::current_target(), stderr);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^SCALAR$");
  EXPECT_EXIT(
      {
        setenv("ALIQUOT_SIMD", "sse9", 1);
        try {
          kernels::current_target();
        } catch (const UsageError& e) {
          std::fputs(e.what(), stderr);
          std::exit(3);
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(3),
      "ALIQUOT_SIMD: this machine has no SIMD target \"sse9\"; it has .*SCALAR");
}

}  // namespace
}  // namespace aliquot
