#include "aliquot/data/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "aliquot/data/permutation.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

/// Token i is i, so that every batch says where its tokens come from.
class Counting final : public TokenSource {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int64_t> out) const override {
    check(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_, "read past the end");
    std::iota(out.begin(), out.end(), first);
  }
  std::optional<int64_t> vocab_size() const override { return std::nullopt; }
  std::string where(int64_t token) const override { return "counting, token " + std::to_string(token); }
  std::string name() const override { return "counting"; }
  std::string describe() const override { return "counting"; }
  uint64_t fingerprint() const override { return 0; }

 private:
  int64_t size_;
};

Sampler make(int64_t tokens, SamplerOptions options) {
  options.vocab_size = tokens;
  return Sampler(std::make_shared<Counting>(tokens), options);
}

struct Rows {
  std::vector<int64_t> ids, targets;
};

/// The global batch of a step, put together from what each rank gets in each micro-step.
Rows global_batch(const Sampler& sampler, int64_t step, int64_t seq_len, int64_t train_batch, int64_t world,
                  int64_t micro_batch) {
  Rows all{std::vector<int64_t>(train_batch * seq_len, -1), std::vector<int64_t>(train_batch * seq_len, -1)};
  const int64_t micro_steps = train_batch / (world * micro_batch);
  for (int64_t micro_step = 0; micro_step < micro_steps; ++micro_step)
    for (int64_t rank = 0; rank < world; ++rank) {
      const BatchSlice slice{micro_step, rank, world, micro_batch};
      const auto at = static_cast<size_t>(slice.first_row() * seq_len),
                 count = static_cast<size_t>(micro_batch * seq_len);
      sampler.fill(step, slice, std::span(all.ids).subspan(at, count),
                   std::span(all.targets).subspan(at, count));
    }
  return all;
}

template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

RC_GTEST_PROP(Permutation, IsOne, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, 3000);
  const Permutation permutation(size, *rc::gen::arbitrary<uint64_t>());
  std::vector<bool> seen(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t image = permutation(i);
    RC_ASSERT(image >= 0 && image < size);
    RC_ASSERT(!seen[static_cast<size_t>(image)]);
    seen[static_cast<size_t>(image)] = true;
  }
}

RC_GTEST_PROP(Permutation, StaysInsideLargeDomains, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, int64_t{1} << 62);
  const Permutation permutation(size, *rc::gen::arbitrary<uint64_t>());
  const int64_t a = *rc::gen::inRange<int64_t>(0, size), b = *rc::gen::inRange<int64_t>(0, size);
  RC_ASSERT(permutation(a) >= 0 && permutation(a) < size);
  RC_ASSERT((permutation(a) == permutation(b)) == (a == b));
}

// Over many keys each element should come to each place equally often; the bound is six standard deviations.
TEST(Permutation, IsEven) {
  constexpr int64_t kSize = 10, kKeys = 20000;
  constexpr double kExpected = 2000;  // kKeys / kSize
  std::map<std::pair<int64_t, int64_t>, int> count;
  for (uint64_t key = 0; key < kKeys; ++key)
    for (int64_t i = 0; i < kSize; ++i) ++count[{i, Permutation(kSize, mix64(key))(i)}];
  EXPECT_EQ(count.size(), kSize * kSize);
  for (const auto& [pair, times] : count)
    EXPECT_NEAR(times, kExpected, 6 * std::sqrt(kExpected)) << pair.first << "→" << pair.second;
}

RC_GTEST_PROP(Sampler, EveryWindowOnceAnEpoch, ()) {
  const auto seq_len = *rc::gen::inRange<int64_t>(1, 9),
             tokens = *rc::gen::inRange<int64_t>(2 * seq_len + 1, 400);
  const auto sampler = make(tokens, {.seq_len = seq_len,
                                     .train_batch = 1,
                                     .seed = *rc::gen::arbitrary<uint64_t>(),
                                     .eval_fraction = *rc::gen::element(0.0, 0.01, 0.3, 0.99)});
  const int64_t epoch = *rc::gen::inRange<int64_t>(0, 4), windows = sampler.train_windows();
  std::multiset<int64_t> targets;
  for (int64_t step = epoch * windows; step < (epoch + 1) * windows; ++step) {
    const Rows rows = global_batch(sampler, step, seq_len, 1, 1, 1);
    RC_ASSERT(rows.ids[0] % seq_len == 0);
    for (size_t i = 0; i < rows.ids.size(); ++i) RC_ASSERT(rows.targets[i] == rows.ids[i] + 1);
    targets.insert(rows.targets.begin(), rows.targets.end());
  }
  std::multiset<int64_t> expected;
  for (int64_t token = 1; token <= windows * seq_len; ++token) expected.insert(token);
  RC_ASSERT(targets == expected);
}

RC_GTEST_PROP(Sampler, GlobalBatchIsTheSameForAnyWorldAndMicroBatch, ()) {
  constexpr int64_t kTrainBatch = 24, kSeqLen = 5;
  const auto sampler =
      make(*rc::gen::inRange<int64_t>(11, 2000),
           {.seq_len = kSeqLen, .train_batch = kTrainBatch, .seed = *rc::gen::arbitrary<uint64_t>()});
  const auto step = *rc::gen::inRange<int64_t>(0, 1000);
  const Rows whole = global_batch(sampler, step, kSeqLen, kTrainBatch, 1, kTrainBatch);
  RC_ASSERT(std::find(whole.ids.begin(), whole.ids.end(), -1) == whole.ids.end());
  for (const int64_t world : {1, 2, 3, 4, 6, 8})
    for (const int64_t micro_batch : {1, 2, 3, 4, 6, 12}) {
      if (kTrainBatch % (world * micro_batch) != 0) continue;
      const Rows split = global_batch(sampler, step, kSeqLen, kTrainBatch, world, micro_batch);
      RC_ASSERT(split.ids == whole.ids);
      RC_ASSERT(split.targets == whole.targets);
    }
}

RC_GTEST_PROP(Sampler, HeldOutIsNeverTrainedOn, ()) {
  const auto seq_len = *rc::gen::inRange<int64_t>(1, 7),
             tokens = *rc::gen::inRange<int64_t>(2 * seq_len + 1, 300);
  const auto world = *rc::gen::inRange<int64_t>(1, 5), micro_batch = *rc::gen::inRange<int64_t>(1, 5);
  const auto sampler = make(tokens, {.seq_len = seq_len,
                                     .train_batch = 4,
                                     .seed = *rc::gen::arbitrary<uint64_t>(),
                                     .eval_fraction = *rc::gen::element(0.01, 0.2, 0.9),
                                     .max_eval_rows = 0});
  std::multiset<int64_t> held_out;
  std::vector<int64_t> ids(micro_batch * seq_len), targets(ids.size());
  for (int64_t index = 0; index < sampler.eval_batches(world, micro_batch); ++index)
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto rows = sampler.fill_eval(index, {0, rank, world, micro_batch}, ids, targets);
      RC_ASSERT(rows >= 0 && rows <= micro_batch);
      held_out.insert(targets.begin(), targets.begin() + rows * seq_len);
    }
  // All held-out targets, each once, whatever the ranks.
  const int64_t first = sampler.train_windows() * seq_len + 1;
  std::multiset<int64_t> expected;
  for (int64_t i = 0; i < sampler.eval_windows() * seq_len; ++i) expected.insert(first + i);
  RC_ASSERT(held_out == expected);
  for (int64_t step = 0; step < 2 * sampler.train_windows(); ++step) {
    const Rows rows = global_batch(sampler, step, seq_len, 4, 1, 4);
    for (const int64_t id : rows.ids) RC_ASSERT(held_out.count(id) == 0);
    for (const int64_t target : rows.targets) RC_ASSERT(held_out.count(target) == 0);
  }
}

TEST(Sampler, AnEvaluationTakesEvenlySpacedWindows) {
  const auto sampler = make(1001, {.seq_len = 1, .train_batch = 1, .eval_fraction = 0.5, .max_eval_rows = 8});
  ASSERT_EQ(sampler.eval_windows(), 500);
  ASSERT_EQ(sampler.eval_rows(), 8);
  ASSERT_EQ(sampler.eval_batches(2, 3), 2);
  std::vector<int64_t> seen, ids(3), targets(3);
  for (int64_t index = 0; index < 2; ++index)
    for (int64_t rank = 0; rank < 2; ++rank) {
      const auto rows = sampler.fill_eval(index, {0, rank, 2, 3}, ids, targets);
      seen.insert(seen.end(), ids.begin(), ids.begin() + rows);
    }
  EXPECT_EQ(seen, (std::vector<int64_t>{500, 562, 625, 687, 750, 812, 875, 937}));
  EXPECT_EQ(make(1001, {.seq_len = 1, .train_batch = 1, .eval_fraction = 0}).eval_batches(2, 3), 0);
}

TEST(Sampler, SeedAndEpochShuffleAnew) {
  const SamplerOptions options{.seq_len = 4, .train_batch = 50, .seed = 1};
  const auto one = make(4000, options);
  auto other = options;
  other.seed = 2;
  const Rows rows = global_batch(one, 0, 4, 50, 1, 50);
  EXPECT_NE(rows.ids, global_batch(make(4000, other), 0, 4, 50, 1, 50).ids);
  EXPECT_EQ(rows.ids, global_batch(make(4000, options), 0, 4, 50, 1, 50).ids);
  EXPECT_FALSE(std::is_sorted(rows.ids.begin(), rows.ids.end()));
  std::vector<int64_t> first_epoch, second_epoch;
  for (int64_t row = 0; row < one.train_windows(); ++row) {
    first_epoch.push_back(one.window(0, row));
    second_epoch.push_back(one.window(0, one.train_windows() + row));
  }
  EXPECT_NE(first_epoch, second_epoch);
  EXPECT_TRUE(std::is_permutation(first_epoch.begin(), first_epoch.end(), second_epoch.begin()));
}

TEST(Sampler, CountsEpochs) {
  const auto sampler = make(101, {.seq_len = 10, .train_batch = 4, .eval_fraction = 0.2});
  EXPECT_EQ(sampler.train_windows(), 8);
  EXPECT_EQ(sampler.eval_windows(), 2);
  EXPECT_DOUBLE_EQ(sampler.epoch(0), 0.0);
  EXPECT_DOUBLE_EQ(sampler.epoch(3), 1.5);
}

TEST(Sampler, RefusesWhatIsTooShort) {
  EXPECT_EQ(message_of([] { make(16, {.seq_len = 16, .train_batch = 1, .eval_fraction = 0}); }),
            "counting: 16 tokens, but one sequence of seq_len 16 takes 17; give more data or a seq_len of at "
            "most 15");
  EXPECT_EQ(
      message_of([] { make(20, {.seq_len = 16, .train_batch = 1}); }),
      "counting: 20 tokens make one sequence of seq_len 16, and none is left to hold out; give more data, a "
      "seq_len of at most 9, or a held-out fraction of 0");
  EXPECT_EQ(make(17, {.seq_len = 16, .train_batch = 1, .eval_fraction = 0}).train_windows(), 1);
}

TEST(Sampler, RefusesBadOptions) {
  EXPECT_THROW(make(100, {.seq_len = 0, .train_batch = 1}), ConfigError);
  EXPECT_THROW(make(100, {.seq_len = 4, .train_batch = 0}), ConfigError);
  EXPECT_THROW(make(100, {.seq_len = 4, .train_batch = 1, .eval_fraction = 1.0}), ConfigError);
  EXPECT_THROW(make(100, {.seq_len = 4, .train_batch = 1, .eval_fraction = -0.1}), ConfigError);
  EXPECT_THROW(make(100, {.seq_len = 4, .train_batch = 1, .max_eval_rows = -1}), ConfigError);
}

TEST(Sampler, RefusesSlicesBeyondTheBatchAndWrongBuffers) {
  const auto sampler = make(100, {.seq_len = 4, .train_batch = 4});
  std::vector<int64_t> ids(8), targets(8);
  EXPECT_NE(message_of([&] {
              sampler.fill(0, {1, 1, 2, 2}, ids, targets);
            }).find("rows 6 to 7 of micro-step 1, rank 1"),
            std::string::npos);
  EXPECT_THROW(sampler.fill(0, {0, 2, 2, 2}, ids, targets), UsageError);
  EXPECT_THROW(sampler.fill(0, {0, 0, 1, 1}, ids, targets), UsageError);
  EXPECT_THROW(sampler.fill(-1, {0, 0, 1, 2}, ids, targets), UsageError);
  EXPECT_THROW(sampler.fill_eval(1, {0, 0, 1, 2}, ids, targets), UsageError);
}

TEST(Sampler, NamesAnIdOutsideTheVocabulary) {
  const Sampler sampler(std::make_shared<Counting>(101),
                        {.seq_len = 10, .train_batch = 1, .vocab_size = 37, .eval_fraction = 0});
  std::vector<int64_t> ids(10), targets(10);
  std::string message;
  for (int64_t step = 0; step < 10; ++step)
    if (sampler.window(step, 0) == 3) message = message_of([&] { sampler.fill(step, {}, ids, targets); });
  EXPECT_EQ(message,
            "counting, token 37: id 37 lies outside the model's vocabulary of 37; these data were made with "
            "another "
            "tokenizer: use a model whose vocab_size covers it, or the data of this model's tokenizer");
}

}  // namespace
}  // namespace aliquot
