// Sequences of the loss scale with the values that users and DeepSpeed's own tests expect.
#include "aliquot/optim/loss_scaler.h"

#include "testing.h"

namespace aliquot {
namespace {

Fp16Config fp16(int power, int64_t window, int64_t hysteresis, double minimum = 1) {
  Fp16Config config;
  config.enabled = true;
  config.initial_scale_power = power;
  config.loss_scale_window = window;
  config.hysteresis = hysteresis;
  config.min_loss_scale = minimum;
  return config;
}

// The scale after each boundary; 'o' overflows, 'c' is clean.
std::vector<double> scales(LossScaler& scaler, const std::string& boundaries) {
  std::vector<double> result;
  for (const char b : boundaries) {
    scaler.update(b == 'o');
    result.push_back(scaler.scale());
  }
  return result;
}

std::vector<double> scales(const Fp16Config& config, const std::string& boundaries) {
  LossScaler scaler(config);
  return scales(scaler, boundaries);
}

using Scales = std::vector<double>;

// user-pains A2
TEST(LossScaler, HysteresisIsUsedBeforeTheScaleFalls) {
  LossScaler scaler(fp16(16, 1000, 2));
  EXPECT_EQ(scaler.update(true), "loss scale stays 65536: hysteresis used, 1 of 2 left");
  EXPECT_EQ(scaler.update(true), "loss scale 65536 -> 32768");
  EXPECT_EQ(scaler.update(true), "loss scale 32768 -> 16384");
  EXPECT_EQ(scaler.update(true), "loss scale 16384 -> 8192");
  EXPECT_EQ(scaler.update(false), "");
}

// user-pains A4
TEST(LossScaler, StartsWhereTheDocumentationSays) {
  Fp16Config config;
  config.enabled = true;
  EXPECT_EQ(LossScaler(config).scale(), 65536);
}

// user-pains A5
TEST(LossScaler, StaticScaleNeverMovesAndNeverEnds) {
  Fp16Config config = fp16(16, 2, 1);
  config.loss_scale = 128;
  LossScaler scaler(config);
  EXPECT_FALSE(scaler.dynamic());
  for (int i = 0; i < 500; ++i) EXPECT_EQ(scaler.update(true), "loss scale stays 128: it is static");
  EXPECT_EQ(scaler.update(false), "");
  EXPECT_EQ(scaler.scale(), 128);
}

// user-pains A6
TEST(LossScaler, ConsecutiveHysteresisRefillsAtEveryCleanStep) {
  Fp16Config config = fp16(4, 1000, 2);
  EXPECT_EQ(scales(config, "ocococ"), (Scales{16, 16, 8, 8, 4, 4}));
  config.consecutive_hysteresis = true;
  EXPECT_EQ(scales(config, "ocococ"), (Scales{16, 16, 16, 16, 16, 16}));
}

// user-pains A7
TEST(LossScaler, FirstRiseComesAfterWindowPlusOne) {
  EXPECT_EQ(scales(fp16(4, 2, 2),
                   "cccccooccc"
                   "ooo"),
            (Scales{16, 16, 32, 32, 64, 64, 32, 32, 32, 64, 64, 32, 16}));
}

// user-pains A8: bf16 and fp32 have no scale to speak of.
TEST(LossScaler, WithoutFp16ThereIsNoScale) {
  LossScaler scaler(Fp16Config{});
  for (int i = 0; i < 200; ++i) EXPECT_EQ(scaler.update(true), "");
  EXPECT_EQ(scaler.scale(), 1);
}

// DeepSpeed's unit tests, power 8, window 2: growth, all overflow, some overflow.
TEST(LossScaler, DeepSpeedsOwnCases) {
  EXPECT_EQ(scales(fp16(8, 2, 2), "cccccccccc"),
            (Scales{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}));
  EXPECT_EQ(scales(fp16(8, 2, 1), "oooooooo"), (Scales{128, 64, 32, 16, 8, 4, 2, 1}));
  EXPECT_EQ(scales(fp16(8, 2, 3), "oooo"), (Scales{256, 256, 128, 64}));
}

TEST(LossScaler, AtTheMinimumItStaysAndSaysSo) {
  LossScaler scaler(fp16(1, 2, 1));
  scaler.update(true);
  EXPECT_EQ(scaler.update(true),
            "loss scale stays 1, its minimum; 1 of 100 overflows there in a row that end the run");
  EXPECT_EQ(scales(scaler, "occccc"), (Scales{1, 1, 1, 2, 2, 4}));
  EXPECT_EQ(scaler.state().overflows_at_minimum, 0);
}

TEST(LossScaler, EndlessOverflowAtTheMinimumEndsTheRunByName) {
  LossScaler scaler(fp16(0, 2, 1));
  for (int64_t i = 1; i < LossScaler::kPatience; ++i) ASSERT_NO_THROW(scaler.update(true)) << i;
  try {
    scaler.update(true);
    FAIL() << "did not end";
  } catch (const LossScaleError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("100 steps in a row overflowed at the minimum loss scale 1"), std::string::npos)
        << text;
    EXPECT_NE(text.find("bf16"), std::string::npos) << text;
  }
}

TEST(LossScaler, OneCleanStepStartsThePatienceAnew) {
  LossScaler scaler(fp16(0, 1000, 1));
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 1; i < LossScaler::kPatience; ++i) ASSERT_NO_THROW(scaler.update(true));
    scaler.update(false);
  }
}

TEST(LossScaler, AStateGoesOnWhereItWasTaken) {
  auto random = testing::seeded(51);
  const Fp16Config config = fp16(10, 3, 2);
  LossScaler whole(config);
  for (int i = 0; i < 200; ++i) {
    LossScaler resumed(config);
    resumed.load_state(whole.state());
    const bool overflow = random() % 3 == 0;
    EXPECT_EQ(whole.update(overflow), resumed.update(overflow));
    EXPECT_EQ(whole.state(), resumed.state());
  }
}

TEST(LossScaler, RefusesWhatNoScaleCanComeOf) {
  EXPECT_THROW(LossScaler(fp16(1100, 1000, 2)), ConfigError);
  EXPECT_THROW(LossScaler(fp16(-1200, 1000, 2)), ConfigError);
  EXPECT_THROW(LossScaler(fp16(16, 0, 2)), ConfigError);
  EXPECT_THROW(LossScaler(fp16(16, 1000, 2, 0)), ConfigError);
  EXPECT_THROW(LossScaler(fp16(16, 1000, 2, INFINITY)), ConfigError);
  Fp16Config negative = fp16(16, 1000, 2);
  negative.loss_scale = -1;
  EXPECT_THROW(LossScaler{negative}, ConfigError);
  negative.loss_scale = NAN;
  EXPECT_THROW(LossScaler{negative}, ConfigError);
}

}  // namespace
}  // namespace aliquot
