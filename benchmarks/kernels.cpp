// Bandwidth of the kernels beside that of memcpy, on every SIMD target of the machine.
//
//   bench_kernels [--benchmark_filter=adamw.*50000000]
//
// Bytes are those that must move: an AdamW step reads gradient, master and two moments and writes all but the
// gradient, 28 bytes a parameter with fp32 gradients. 16,384 elements stay in the second-level cache and show
// the arithmetic; 50,000,000 show the memory. Compare within one run: other programs on the machine share its
// memory.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "aliquot/optim/kernels.h"

namespace aliquot {
namespace {

constexpr int64_t kInCache = 1 << 14;
constexpr int64_t kInMemory = 50'000'000;

// Numbers of the size that training has: zeros would make the moments subnormal, which is slow for another
// reason.
std::vector<float> numbers(int64_t n, float scale) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = 12345;
  for (float& x : values) {
    state = state * 1664525 + 1013904223;
    x = scale * (static_cast<float>(state >> 8) / 16777216.0F + 0.01F);
  }
  return values;
}

std::vector<std::byte> numbers_in(DType dtype, int64_t n, float scale) {
  std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(dtype)));
  kernels::narrow(numbers(n, scale).data(), bytes.data(), dtype, n);
  return bytes;
}

using Update = void (*)(const kernels::Slice&, const kernels::Hyper&);

void update(benchmark::State& state, const char* target, Update kernel, int moments, DType grad_dtype,
            DType publish_dtype) {
  kernels::use_target(target);
  const int64_t n = state.range(0);
  std::vector<float> master = numbers(n, 1), moment1 = numbers(moments > 0 ? n : 0, 1e-3F);
  std::vector<float> moment2 = numbers(moments > 1 ? n : 0, 1e-6F);
  const std::vector<std::byte> grad = numbers_in(grad_dtype, n, 1e-3F);
  const bool publishes = publish_dtype != DType::fp32;
  std::vector<uint16_t> published(publishes ? static_cast<size_t>(n) : 0);
  const kernels::Slice slice{.master = master.data(),
                             .grad = grad.data(),
                             .grad_dtype = grad_dtype,
                             .moment1 = moment1.data(),
                             .moment2 = moment2.data(),
                             .publish = publishes ? published.data() : nullptr,
                             .publish_dtype = publish_dtype,
                             .n = n};
  kernels::Hyper hyper{
      .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .momentum = 0.9};
  for (auto _ : state) {
    kernel(slice, hyper);
    ++hyper.step;
    benchmark::ClobberMemory();
  }
  const int64_t bytes = 8 + 8 * moments + size_of(grad_dtype) + (publishes ? 2 : 0);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * n * bytes);
}

void copy(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> from = numbers(n, 1);
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * n * 8);
}

void reduce(benchmark::State& state, const char* target, int ranks, DType dtype) {
  kernels::use_target(target);
  const int64_t n = state.range(0);
  const std::vector<std::vector<std::byte>> values(static_cast<size_t>(ranks), numbers_in(dtype, n, 1));
  std::vector<const void*> inputs;
  for (const auto& v : values) inputs.push_back(v.data());
  std::vector<float> out(static_cast<size_t>(n));
  for (auto _ : state) {
    kernels::reduce(inputs, dtype, out.data(), DType::fp32, false, n);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * n * (ranks * size_of(dtype) + 4));
}

void squares(benchmark::State& state, const char* target, DType dtype) {
  kernels::use_target(target);
  const int64_t n = state.range(0);
  const std::vector<std::byte> x = numbers_in(dtype, n, 1);
  for (auto _ : state) benchmark::DoNotOptimize(kernels::sum_of_squares(x.data(), dtype, n));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * n * size_of(dtype));
}

void narrow(benchmark::State& state, const char* target, DType dtype) {
  kernels::use_target(target);
  const int64_t n = state.range(0);
  const std::vector<float> x = numbers(n, 1);
  std::vector<uint16_t> out(x.size());
  for (auto _ : state) {
    kernels::narrow(x.data(), out.data(), dtype, n);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * n * 6);
}

template <class... Args>
void add(const std::string& name, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), args...)->Arg(kInCache)->Arg(kInMemory);
}

void add_all() {
  add("memcpy", copy);
  for (const char* target : kernels::available_targets()) {
    const std::string on = std::string("/") + target;
    add("adamw" + on, update, target, kernels::adamw, 2, DType::fp32, DType::fp32);
    add("adamw_bf16" + on, update, target, kernels::adamw, 2, DType::bf16, DType::bf16);
    add("adamw_fp16" + on, update, target, kernels::adamw, 2, DType::fp16, DType::fp16);
    add("sgd" + on, update, target, kernels::sgd, 1, DType::fp32, DType::fp32);
    add("lion" + on, update, target, kernels::lion, 1, DType::fp32, DType::fp32);
    add("reduce_2_ranks" + on, reduce, target, 2, DType::fp32);
    add("reduce_8_ranks_bf16" + on, reduce, target, 8, DType::bf16);
    add("sum_of_squares" + on, squares, target, DType::fp32);
    add("narrow_bf16" + on, narrow, target, DType::bf16);
  }
}

}  // namespace
}  // namespace aliquot

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  aliquot::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
