#include "aliquot/config/batch.h"

#include <rapidcheck.h>

#include "testing.h"

namespace aliquot {
namespace {

using testing::are;
using testing::errors_of;
using testing::resolve;
using testing::says;
using testing::world;

std::optional<BatchSize> size(int64_t value) {
  return value == 0 ? std::nullopt : std::optional(BatchSize{value, "test"});
}

// 0 stands for "not given".
std::optional<Batch> batch(int64_t train, int64_t micro, int64_t accumulation, int64_t ranks) {
  try {
    return resolve_batch({.train = size(train),
                          .micro = size(micro),
                          .accumulation = size(accumulation),
                          .world = ranks})
        .sizes();
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// Reference §5.2 case 1.
TEST(BatchSizes, ReferenceTable) {
  for (const auto& [train, micro, accumulation] : {std::tuple(32, 16, 1), {32, 8, 2}}) {
    const Batch whole{train, micro, accumulation};
    EXPECT_EQ(batch(train, micro, accumulation, 2), whole);
    EXPECT_EQ(batch(train, micro, 0, 2), whole);
    EXPECT_EQ(batch(train, 0, accumulation, 2), whole);
    EXPECT_EQ(batch(0, micro, accumulation, 2), whole);
  }
  EXPECT_EQ(batch(0, 16, 0, 2), (Batch{32, 16, 1}));
  EXPECT_EQ(batch(32, 0, 0, 2), (Batch{32, 16, 1}));
  EXPECT_EQ(batch(64, 0, 0, 1), (Batch{64, 64, 1}));
  for (const auto& [train, micro, accumulation] : {std::tuple(33, 17, 2), {32, 18, 1}}) {
    EXPECT_FALSE(batch(train, micro, accumulation, 2));
    EXPECT_FALSE(batch(train, micro, 0, 2));
    EXPECT_FALSE(batch(0, 0, accumulation, 2));
  }
  EXPECT_FALSE(batch(33, 0, 2, 2));
}

// user-pains §4.
TEST(BatchSizes, UserPainsTable) {
  EXPECT_EQ(batch(64, 4, 0, 8), (Batch{64, 4, 2}));
  EXPECT_EQ(batch(32, 0, 0, 8), (Batch{32, 4, 1}));
  EXPECT_FALSE(batch(16, 0, 8, 4));
  EXPECT_FALSE(batch(8, 4, 0, 4));
  EXPECT_FALSE(batch(10, 2, 0, 2));
  EXPECT_FALSE(batch(16, 1, 8, 1));
  EXPECT_EQ(batch(16, 1, 8, 2), (Batch{16, 1, 8}));
}

// user-pains L4: all four numbers, who supplied each, the nearest settings.
TEST(BatchSizes, TheErrorSaysWhoSuppliedWhatAndWhatWouldHold) {
  const auto errors =
      errors_of("{\"train_batch_size\": 10,\n\"train_micro_batch_size_per_gpu\": 2}", world(2));
  ASSERT_TRUE(are(errors, {"ds.json:1:22: 10 != 2 × 2 × 2"}));
  EXPECT_TRUE(says(errors[0],
                   "10   ds.json:1:22*2   ds.json:2:35*2   derived: 10 / 2 / 2, whole*2   ranks of this run*"
                   "nearest that hold: 10 = 1 × 5 × 2, or 8 = 2 × 2 × 2"));
  EXPECT_TRUE(are(errors_of("{\"train_batch_size\": 16, \"gradient_accumulation_steps\": 8}", world(4)),
                  {"16 != 0 × 8 × 4*16 = 1 × 4 × 4*32 = 1 × 8 × 4"}));
  EXPECT_TRUE(are(errors_of("{}", world(2)),
                  {"either train_batch_size or train_micro_batch_size_per_gpu is needed"}));
  EXPECT_TRUE(are(errors_of("{\"train_batch_size\": 4}", world(0)), {"world size 0"}));
}

TEST(BatchSizes, HugeSizesDoNotWrapAround) {
  EXPECT_FALSE(batch(0, INT64_MAX, 2, 1));
  EXPECT_FALSE(batch(4, INT64_MAX, INT64_MAX, 4));
  EXPECT_FALSE(batch(INT64_MAX, INT64_MAX, 1, 2));
  EXPECT_EQ(batch(INT64_MAX, INT64_MAX, 0, 1), (Batch{INT64_MAX, INT64_MAX, 1}));
}

// The suggestion in a refusal, "train = micro × accumulation × world", holds and differs from what was
// refused.
void expect_suggestions_hold(const std::string& message) {
  const size_t start = message.find("nearest that hold: ");
  RC_ASSERT(start != std::string::npos);
  int64_t train = 0, micro = 0, accumulation = 0, ranks = 0;
  RC_ASSERT(std::sscanf(message.c_str() + start, "nearest that hold: %ld = %ld × %ld × %ld", &train, &micro,
                        &accumulation, &ranks) == 4);
  RC_ASSERT(batch(train, micro, accumulation, ranks).has_value());
}

TEST(BatchSizes, Properties) {
  const bool ok = rc::check(
      "what is given is kept, the product holds, and it is refused only where nothing could hold", [] {
        const auto given = [](int64_t high) {
          return *rc::gen::weightedOneOf<int64_t>(
              {{1, rc::gen::just<int64_t>(0)}, {2, rc::gen::inRange<int64_t>(1, high)}});
        };
        const int64_t train = given(200), micro = given(20), accumulation = given(9),
                      ranks = *rc::gen::inRange<int64_t>(1, 9);
        const BatchRequest request{
            .train = size(train), .micro = size(micro), .accumulation = size(accumulation), .world = ranks};
        try {
          const Batch b = resolve_batch(request).sizes();
          RC_ASSERT(b.train == b.micro * b.accumulation * ranks);
          RC_ASSERT(b.micro >= 1 && b.accumulation >= 1);
          RC_ASSERT(train == 0 || b.train == train);
          RC_ASSERT(micro == 0 || b.micro == micro);
          RC_ASSERT(accumulation == 0 || b.accumulation == accumulation);
          RC_ASSERT(micro != 0 || train != 0);
        } catch (const ConfigError& e) {
          if (train == 0 && micro == 0) return;
          const int64_t unit = (micro == 0 ? 1 : micro) * (accumulation == 0 ? 1 : accumulation) * ranks;
          // All three given: the product differs. Otherwise the missing one would have to be a fraction.
          const bool impossible = micro != 0 && accumulation != 0 ? unit != train : train % unit != 0;
          RC_ASSERT(impossible);
          expect_suggestions_hold(e.what());
        }
      });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace aliquot
