// Which tokens every rank sees at every step, as a pure function of (seed, step): there is no state to save.
//
// The source is cut into windows of seq_len + 1 tokens, each beginning at the last token of the one before,
// so that every token is a target exactly once (but the first, and a remainder shorter than a window). The
// last eval_fraction of the windows is held out; the others are shuffled anew each epoch. Row i of step s is
// sample s · train_batch + i of that endless sequence: the global batch of a step depends neither on the
// number of ranks nor on how it is cut into micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "aliquot/data/tokens.h"

namespace aliquot {

struct SamplerOptions {
  int64_t seq_len = 0;      ///< positions of a row; it takes seq_len + 1 tokens
  int64_t train_batch = 0;  ///< rows of a step, over all ranks and micro-steps
  int64_t vocab_size = 0;   ///< of the model: an id at or above it is an IoError
  uint64_t seed = 0;
  double eval_fraction = 0.01;  ///< of the windows, rounded, at least one; 0: nothing is held out
  int64_t max_eval_rows = 256;  ///< held-out windows that an evaluation takes, evenly spaced; 0: all of them
};

/// The rows that one rank takes from a global batch in one micro-step, DeepSpeed's order: micro-step by
/// micro-step, in each rank after rank.
struct BatchSlice {
  int64_t micro_step = 0;
  int64_t rank = 0, world = 1;
  int64_t micro_batch = 1;

  int64_t first_row() const { return (micro_step * world + rank) * micro_batch; }
};

class Sampler {
 public:
  /// Throws IoError when the source is too short for one sequence (two, with a held-out part) or needs a
  /// larger vocabulary, ConfigError for an option out of range.
  Sampler(std::shared_ptr<const TokenSource> source, SamplerOptions options);

  /// Fills `ids` and `targets`, both [micro_batch, seq_len] row by row, with the slice's rows of step `step`
  /// (from 0); targets are the ids one place later. An id outside the vocabulary is an IoError naming its
  /// file and place.
  void fill(int64_t step, const BatchSlice& slice, std::span<int64_t> ids, std::span<int64_t> targets) const;

  /// Evaluation takes eval_rows() of the held-out windows in order, `world · micro_batch` at a time: the
  /// number of such batches. Every rank runs all of them: sharded parameters are gathered by all together.
  int64_t eval_batches(int64_t world, int64_t micro_batch) const;

  /// Fills batch `index` of the evaluation like fill() (the slice's micro_step is not read) and returns how
  /// many of this rank's rows count, from 0 to micro_batch; below that the last batch had run out, and the
  /// remaining rows repeat a held-out window so that a rank without a row can still take part in the forward.
  int64_t fill_eval(int64_t index, const BatchSlice& slice, std::span<int64_t> ids,
                    std::span<int64_t> targets) const;

  int64_t train_windows() const { return train_windows_; }
  int64_t eval_windows() const { return eval_windows_; }  ///< held out
  int64_t eval_rows() const;                              ///< of those, the ones an evaluation takes
  /// The epochs done when step `step` begins, as a fraction: 2.25.
  double epoch(int64_t step) const;
  const TokenSource& source() const { return *source_; }

  /// The window (numbered along the source) that row `row` of step `step` is.
  int64_t window(int64_t step, int64_t row) const;

 private:
  void copy_window(int64_t window, int64_t row, std::span<int64_t> ids, std::span<int64_t> targets) const;
  void check_buffers(const BatchSlice& slice, std::span<int64_t> ids, std::span<int64_t> targets) const;
  void check_vocabulary(int64_t first_token, std::span<const int64_t> tokens) const;

  std::shared_ptr<const TokenSource> source_;
  SamplerOptions options_;
  int64_t train_windows_ = 0, eval_windows_ = 0;
};

}  // namespace aliquot
