// Gradients leave as they are born: into buckets, to their owners, into the owners' accumulators.
//
// [Note: reduction]
// Sharded gradients (stages 2, 3): `deliver` keeps a born gradient until its bucket is complete and all
// earlier buckets have gone; then the bucket is launched: copied into chunks, exchanged, and added by each
// owner in rank order. Launching happens on the reduction thread (`overlap`) or in the hook. `end_backward`
// launches the rest, with absent gradients as +0.0. A second delivery for a parameter in one backward
// (re-entrant recomputation) waits for a late round at the end. Replicated gradients (stages 0, 1): `deliver`
// adds into the rank's own accumulators; `end_window` reduces them once.
//
// Every chunk begins with a header (backward number, bucket, which segments the sender has a gradient for),
// so ranks that diverge are named, and every rank learns which parameters got a gradient anywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aliquot/comm/comm.h"
#include "aliquot/config/config.h"
#include "aliquot/reduce/bucket.h"
#include "aliquot/reduce/exchange.h"
#include "aliquot/reduce/gradients.h"
#include "aliquot/reduce/worker.h"

namespace aliquot {

struct ReducerOptions {
  int64_t bucket_numel = 500'000'000;
  bool overlap = false;                      ///< reduce on a thread of its own while backward goes on
  std::optional<DType> communication_dtype;  ///< rounds each contribution once before the wire
  double predivide =
      1.0;  ///< contributions are divided by it where the wire is 16 bits, and the sums multiplied again
};

struct ReducerStats {
  int64_t bytes = 0;  ///< that this rank sent to other owners, or left for them to read
  int64_t buckets = 0;
  double reduce_ms = 0;  ///< spent in launching, exchanging and adding, on whichever thread
  double wait_ms = 0;    ///< that end_backward or end_window waited for it
};

class Reducer {
 public:
  /// Collective. `comm` belongs to the reducer from here on, except between `end_*` calls and the next
  /// `deliver`.
  Reducer(std::shared_ptr<const Layout> layout, Placement placement, DType grad_accum_dtype, Comm comm,
          const ReducerOptions& options, std::shared_ptr<Meter> meter, std::span<const std::string> names);

  /// A gradient as autograd made it: parameter `param`'s dtype and memory order, dense.
  void deliver(int param, at::Tensor grad);

  /// Collective for sharded gradients. Throws CommError; then the window is lost.
  void end_backward();
  /// Collective. After it, `used` and `gradients` hold the window's sums: this rank's slices, or with
  /// replicated gradients the own slice of each unit (whoever needs the whole gathers it).
  void end_window();
  /// Forgets the window: the next contribution is a copy again.
  void drop_window();

  /// Makes the window's sum of parameter `param` equal `value` (its elements in memory order, the same on
  /// every rank).
  void overwrite(int param, const float* value);

  /// Backward calls in this window that have ended.
  int backwards() const { return backwards_; }
  /// Whether gradients were delivered since the last `end_backward`: a backward that threw, or one without an
  /// end.
  bool in_backward() const { return in_backward_; }
  /// Whether parameter `param` got a gradient on any rank in this window.
  bool used(int param) const { return used_[static_cast<size_t>(param)]; }
  /// Whether this rank has a contribution to it in its accumulators.
  bool contributed(int param) const { return contributed_[static_cast<size_t>(param)]; }
  const Gradients& gradients() const { return gradients_; }
  ReducerStats take_stats();

 private:
  using Grads = std::vector<at::Tensor>;  // by segment of a bucket; undefined where there is none

  bool sharded() const { return gradients_.spread() == Spread::sharded; }
  bool local() const { return comm_.size() == 1; }
  void accumulate(int param, const at::Tensor& grad);
  void launch_complete();
  void launch(int bucket, Grads grads);
  void run_late_rounds();
  void reduce_accumulators();

  // A rank's gradient of segment `i` of a bucket, from its first element; null where it has none.
  using Contribution = std::function<const std::byte*(int i)>;

  // One bucket through the exchange (reduce_bucket.cpp): contributions of dtype `from` travel as `wire`.
  void reduce_bucket(int bucket, DType from, DType wire, bool accumulate, const Contribution& contribution);
  void fill_chunks(int bucket, DType from, DType wire, const Contribution& contribution);
  void add_own_chunk(int bucket, DType wire, bool accumulate, std::span<const std::byte* const> incoming);
  void add_piece(const BucketPiece& piece, SegmentId id, DType wire, bool accumulate,
                 std::span<const void* const> inputs);
  void check_header(const std::byte* chunk, int rank, int bucket) const;
  bool divides(DType wire) const { return wire != DType::fp32 && options_.predivide != 1.0; }
  std::vector<int64_t> chunk_sizes(const Bucket& bucket, DType wire) const;
  int64_t capacity() const;
  DType wire_dtype(DType dtype) const { return options_.communication_dtype.value_or(dtype); }
  std::string describe(int bucket) const;
  int param_of(SegmentId id) const { return layout_->segment(id).param; }

  std::shared_ptr<const Layout> layout_;
  Comm comm_;
  ReducerOptions options_;
  std::shared_ptr<Meter> meter_;
  std::vector<std::string> names_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // by parameter; -1 frozen
  std::vector<int> index_of_;   // by parameter: index within its bucket
  Gradients gradients_;
  std::unique_ptr<Exchange> exchange_;

  // Of the backward under way.
  std::vector<Grads> pending_;                 // by bucket
  std::vector<int> missing_;                   // by bucket
  std::vector<std::vector<at::Tensor>> late_;  // by parameter
  int next_ = 0;                               // first bucket not launched
  bool in_backward_ = false;

  // Of the window.
  std::vector<bool> used_, contributed_;
  std::vector<int> deliveries_;  // by parameter, replicated gradients
  int backwards_ = 0;
  int64_t backward_number_ = 0;  // since the start
  ReducerStats stats_;

  std::unique_ptr<Worker> worker_;  // last: its thread uses all of the above
};

}  // namespace aliquot
