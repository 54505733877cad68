#include "aliquot/reduce/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/optim/kernels.h"

namespace aliquot {
namespace {

using Clock = std::chrono::steady_clock;

size_t at(int i) {
  return static_cast<size_t>(i);
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

const std::byte* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const std::byte*>(tensor.const_data_ptr()) : nullptr;
}

}  // namespace

Reducer::Reducer(std::shared_ptr<const Layout> layout, Placement placement, DType grad_accum_dtype, Comm comm,
                 const ReducerOptions& options, std::shared_ptr<Meter> meter,
                 std::span<const std::string> names)
    : layout_(std::move(layout)),
      comm_(std::move(comm)),
      options_(options),
      meter_(std::move(meter)),
      names_(names.begin(), names.end()),
      buckets_(plan_buckets(*layout_, effective_bucket_numel(*layout_, options.bucket_numel))),
      bucket_of_(names.size(), -1),
      index_of_(names.size(), -1),
      gradients_(layout_, placement.grads, grad_accum_dtype, comm_.rank(), meter_),
      late_(names.size()),
      used_(names.size(), false),
      contributed_(names.size(), false),
      deliveries_(names.size(), 0) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    pending_.emplace_back(bucket.segments.size());
    missing_.push_back(static_cast<int>(bucket.segments.size()));
    for (size_t i = 0; i < bucket.segments.size(); ++i) {
      bucket_of_[at(param_of(bucket.segments[i]))] = static_cast<int>(b);
      index_of_[at(param_of(bucket.segments[i]))] = static_cast<int>(i);
    }
  }
  if (!local()) exchange_ = Exchange::create(comm_, capacity(), meter_);
  if (!local() && sharded() && options_.overlap) worker_ = std::make_unique<Worker>();
}

std::string Reducer::describe(int bucket) const {
  const auto& segments = buckets_[at(bucket)].segments;
  return fmt::format("reduce bucket {} ({}{})", bucket, names_[at(param_of(segments.front()))],
                     segments.size() > 1 ? fmt::format(" and {} more", segments.size() - 1) : "");
}

// ---- deliveries
// ------------------------------------------------------------------------------------------------------

void Reducer::deliver(int param, at::Tensor grad) {
  in_backward_ = true;
  if (local() || !sharded()) {
    accumulate(param, grad);
    return;
  }
  const int bucket = bucket_of_[at(param)];
  at::Tensor& slot = pending_[at(bucket)][at(index_of_[at(param)])];
  if (bucket < next_ || slot.defined()) {
    late_[at(param)].push_back(std::move(grad));
    return;
  }
  slot = std::move(grad);
  if (--missing_[at(bucket)] == 0) launch_complete();
}

// A3 on this rank alone.
void Reducer::accumulate(int param, const at::Tensor& grad) {
  const SegmentId id = layout_->segment_of(param);
  const Segment& segment = layout_->segment(id);
  const void* const input = bytes_of(grad);
  const DType born = layout_->unit(id.unit).dtype;
  // With one rank, reduction is this copy or addition itself; the order of stages 2 and 3 is the same as that
  // of 0 and 1.
  kernels::reduce({&input, 1}, born, gradients_.at(id.unit, segment.offset), gradients_.dtype(),
                  contributed_[at(param)], segment.numel);
  contributed_[at(param)] = true;
  used_[at(param)] = true;
  ++deliveries_[at(param)];
}

void Reducer::launch_complete() {
  while (next_ < static_cast<int>(buckets_.size()) && missing_[at(next_)] == 0) {
    const int bucket = next_++;
    launch(bucket, std::exchange(pending_[at(bucket)], Grads(buckets_[at(bucket)].segments.size())));
  }
}

void Reducer::launch(int bucket, Grads grads) {
  auto job = [this, bucket, grads = std::move(grads)] {
    const DType born = buckets_[at(bucket)].dtype;
    reduce_bucket(bucket, born, wire_dtype(born), true, [&](int i) { return bytes_of(grads[at(i)]); });
  };
  if (worker_) {
    worker_->post(std::move(job));
  } else {
    job();
  }
}

void Reducer::end_backward() {
  if (!local() && sharded()) {
    const auto start = Clock::now();
    for (int& missing : missing_) missing = 0;
    launch_complete();
    if (worker_) worker_->wait();
    run_late_rounds();
    for (size_t b = 0; b < buckets_.size(); ++b) missing_[b] = static_cast<int>(buckets_[b].segments.size());
    next_ = 0;
    stats_.wait_ms += ms_since(start);
  }
  in_backward_ = false;
  ++backwards_;
  ++backward_number_;
}

void Reducer::run_late_rounds() {
  size_t rounds = 0;
  for (const auto& grads : late_) rounds = std::max(rounds, grads.size());
  std::vector<int64_t> all(at(comm_.size()));
  const auto mine = static_cast<int64_t>(rounds);
  comm_.all_gather(&mine, all.data(), sizeof(mine), "end of backward");
  const int64_t most = *std::max_element(all.begin(), all.end());
  for (int64_t round = 0; round < most; ++round) {
    for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
      const DType born = buckets_[at(b)].dtype;
      reduce_bucket(b, born, wire_dtype(born), true, [&](int i) -> const std::byte* {
        const auto& grads = late_[at(param_of(buckets_[at(b)].segments[at(i)]))];
        return static_cast<size_t>(round) < grads.size() ? bytes_of(grads[static_cast<size_t>(round)])
                                                         : nullptr;
      });
    }
  }
  for (auto& grads : late_) grads.clear();
}

// ---- the window
// ------------------------------------------------------------------------------------------------------

void Reducer::end_window() {
  if (local() || sharded()) return;
  const auto start = Clock::now();
  reduce_accumulators();
  stats_.wait_ms += ms_since(start);
}

// A3 for stages 0 and 1: G = R(A₀ … A_{N−1}), each sum where it is owned.
void Reducer::reduce_accumulators() {
  struct Window {
    int64_t backwards, deliveries;
  };
  int64_t deliveries = 0;
  for (const int n : deliveries_) deliveries = std::max<int64_t>(deliveries, n);
  const Window mine{backwards_, deliveries};
  std::vector<Window> all(at(comm_.size()));
  comm_.all_gather(&mine, all.data(), sizeof(mine), "end of the accumulation window");
  int64_t most = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    if (all[at(r)].backwards != mine.backwards) {
      throw CommError(
          fmt::format("rank {} ran {} backward passes in this accumulation window and rank {} ran {}: every "
                      "rank must run the same number before step()",
                      comm_.rank(), mine.backwards, r, all[at(r)].backwards));
    }
    most = std::max(most, all[at(r)].deliveries);
  }
  const DType held = gradients_.dtype();
  for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
    const Bucket& bucket = buckets_[at(b)];
    // An fp32 accumulator that holds one born gradient goes back to the born dtype exactly.
    const DType wire = held == DType::fp32 && most <= 1 ? bucket.dtype : held;
    reduce_bucket(b, held, wire_dtype(wire), false, [&](int i) -> const std::byte* {
      const SegmentId id = bucket.segments[at(i)];
      if (!contributed_[at(param_of(id))]) return nullptr;
      return gradients_.at(id.unit, layout_->segment(id).offset);
    });
  }
}

void Reducer::overwrite(int param, const float* value) {
  const SegmentId id = layout_->segment_of(param);
  const auto write = [&](int64_t param_offset, int64_t unit_offset, int64_t numel, bool zero) {
    const void* const input = zero ? nullptr : value + param_offset;
    kernels::reduce({&input, 1}, DType::fp32, gradients_.at(id.unit, unit_offset), gradients_.dtype(), false,
                    numel);
  };
  const Segment& segment = layout_->segment(id);
  if (sharded()) {
    for (const Piece& piece : layout_->pieces(id.unit, comm_.rank())) {
      if (piece.segment == id.segment) write(piece.param_offset, piece.unit_offset, piece.numel, false);
    }
  } else {
    // Only rank 0's local sum counts, so that the sum over ranks is the value itself.
    write(0, segment.offset, segment.numel, comm_.rank() != 0);
    deliveries_[at(param)] = 2;  // no born gradient: it travels in fp32
  }
  used_[at(param)] = true;
  contributed_[at(param)] = true;
}

void Reducer::drop_window() {
  if (worker_) worker_->wait();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    pending_[b].assign(buckets_[b].segments.size(), {});
    missing_[b] = static_cast<int>(buckets_[b].segments.size());
  }
  for (auto& grads : late_) grads.clear();
  next_ = 0;
  in_backward_ = false;
  used_.assign(used_.size(), false);
  contributed_.assign(contributed_.size(), false);
  deliveries_.assign(deliveries_.size(), 0);
  backwards_ = 0;
}

ReducerStats Reducer::take_stats() {
  return std::exchange(stats_, {});
}

}  // namespace aliquot
