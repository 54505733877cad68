#include "aliquot/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "aliquot/data/permutation.h"
#include "aliquot/error.h"

namespace aliquot {

namespace {

void check_options(const SamplerOptions& options) {
  if (options.seq_len < 1)
    throw ConfigError(fmt::format("seq_len is {}: a sequence has at least 1 position", options.seq_len));
  if (options.train_batch < 1)
    throw ConfigError(fmt::format("train_batch_size is {}: a step has at least 1 row", options.train_batch));
  if (!(options.eval_fraction >= 0 && options.eval_fraction < 1))
    throw ConfigError(fmt::format(
        "the held-out fraction is {}: give one from 0 (nothing held out) to below 1", options.eval_fraction));
  if (options.max_eval_rows < 0)
    throw ConfigError(
        fmt::format("an evaluation of {} sequences cannot be; give 0 for all", options.max_eval_rows));
}

void check_text_vocabulary(const TokenSource& source, int64_t vocab_size) {
  if (const auto needed = source.vocab_size(); needed && *needed > vocab_size)
    throw IoError(
        fmt::format("{}: its ids need a vocabulary of {}, the model has vocab_size {}; use a model with at "
                    "least {}",
                    source.name(), *needed, vocab_size, *needed));
}

}  // namespace

Sampler::Sampler(std::shared_ptr<const TokenSource> source, SamplerOptions options)
    : source_(std::move(source)), options_(options) {
  check_options(options_);
  check_text_vocabulary(*source_, options_.vocab_size);
  const int64_t tokens = source_->size(), needed = options_.seq_len + 1;
  if (tokens < needed)
    throw IoError(
        fmt::format("{}: {} tokens, but one sequence of seq_len {} takes {}; give more data or a seq_len of "
                    "at most {}",
                    source_->name(), tokens, options_.seq_len, needed, std::max<int64_t>(tokens - 1, 0)));
  const int64_t windows = (tokens - 1) / options_.seq_len;
  if (options_.eval_fraction > 0) {
    if (windows < 2)
      throw IoError(fmt::format(
          "{}: {} tokens make one sequence of seq_len {}, and none is left to hold out; give more "
          "data, a seq_len of at most {}, or a held-out fraction of 0",
          source_->name(), tokens, options_.seq_len, (tokens - 1) / 2));
    const auto rounded = std::llround(options_.eval_fraction * static_cast<double>(windows));
    eval_windows_ = std::clamp<int64_t>(rounded, 1, windows - 1);
  }
  train_windows_ = windows - eval_windows_;
}

double Sampler::epoch(int64_t step) const {
  return static_cast<double>(step) * static_cast<double>(options_.train_batch) /
         static_cast<double>(train_windows_);
}

int64_t Sampler::window(int64_t step, int64_t row) const {
  const int64_t sample = step * options_.train_batch + row;
  const auto epoch = static_cast<uint64_t>(sample / train_windows_);
  return Permutation(train_windows_, mix64(options_.seed ^ mix64(epoch)))(sample % train_windows_);
}

void Sampler::fill(int64_t step, const BatchSlice& slice, std::span<int64_t> ids,
                   std::span<int64_t> targets) const {
  check_buffers(slice, ids, targets);
  if (step < 0) throw UsageError(fmt::format("there is no step {}", step));
  if (slice.first_row() + slice.micro_batch > options_.train_batch)
    throw UsageError(fmt::format(
        "rows {} to {} of micro-step {}, rank {} lie beyond the train_batch_size of {}", slice.first_row(),
        slice.first_row() + slice.micro_batch - 1, slice.micro_step, slice.rank, options_.train_batch));
  for (int64_t row = 0; row < slice.micro_batch; ++row)
    copy_window(window(step, slice.first_row() + row), row, ids, targets);
}

int64_t Sampler::eval_rows() const {
  return options_.max_eval_rows > 0 ? std::min(options_.max_eval_rows, eval_windows_) : eval_windows_;
}

int64_t Sampler::eval_batches(int64_t world, int64_t micro_batch) const {
  const int64_t rows = world * micro_batch;
  return (eval_rows() + rows - 1) / rows;
}

int64_t Sampler::fill_eval(int64_t index, const BatchSlice& slice, std::span<int64_t> ids,
                           std::span<int64_t> targets) const {
  check_buffers(slice, ids, targets);
  if (index < 0 || index >= eval_batches(slice.world, slice.micro_batch))
    throw UsageError(fmt::format("there is no evaluation batch {}: {} held-out sequences make {}", index,
                                 eval_rows(), eval_batches(slice.world, slice.micro_batch)));
  const int64_t first = (index * slice.world + slice.rank) * slice.micro_batch, rows = eval_rows();
  for (int64_t row = 0; row < slice.micro_batch; ++row) {
    const int64_t held_out = std::min(first + row, rows - 1) * eval_windows_ / rows;
    copy_window(train_windows_ + held_out, row, ids, targets);
  }
  return std::clamp<int64_t>(rows - first, 0, slice.micro_batch);
}

void Sampler::check_buffers(const BatchSlice& slice, std::span<int64_t> ids,
                            std::span<int64_t> targets) const {
  const bool in_range =
      slice.micro_step >= 0 && slice.micro_batch >= 1 && slice.rank >= 0 && slice.rank < slice.world;
  const auto needed = static_cast<size_t>(slice.micro_batch * options_.seq_len);
  if (!in_range || ids.size() != needed || targets.size() != needed)
    throw UsageError(
        fmt::format("a batch of {} rows for rank {} of {} needs buffers of {} ids and targets each, not {} "
                    "and {}",
                    slice.micro_batch, slice.rank, slice.world, needed, ids.size(), targets.size()));
}

void Sampler::copy_window(int64_t window, int64_t row, std::span<int64_t> ids,
                          std::span<int64_t> targets) const {
  const int64_t length = options_.seq_len, first = window * length;
  std::vector<int64_t> tokens(static_cast<size_t>(length) + 1);
  source_->read(first, tokens);
  check_vocabulary(first, tokens);
  std::copy(tokens.begin(), tokens.end() - 1, ids.begin() + row * length);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin() + row * length);
}

void Sampler::check_vocabulary(int64_t first_token, std::span<const int64_t> tokens) const {
  const auto inside = [this](int64_t id) { return id >= 0 && id < options_.vocab_size; };
  const auto bad = std::find_if_not(tokens.begin(), tokens.end(), inside);
  if (bad == tokens.end()) return;
  throw IoError(
      fmt::format("{}: id {} lies outside the model's vocabulary of {}; these data were made with another "
                  "tokenizer: use a model whose vocab_size covers it, or the data of this model's tokenizer",
                  source_->where(first_token + (bad - tokens.begin())), *bad, options_.vocab_size));
}

}  // namespace aliquot
