#include "aliquot/observe/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "aliquot/log.h"

namespace aliquot {
namespace {

/// A FILE that keeps what is written to it.
class Captured {
 public:
  Captured() : file_(open_memstream(&bytes_, &size_)) {}
  ~Captured() {
    fclose(file_);
    free(bytes_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  std::FILE* file() { return file_; }
  std::string text() {
    fflush(file_);
    return {bytes_, size_};
  }

 private:
  char* bytes_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

/// What a terminal of `columns` shows after `output`, as lines; a line that wraps counts as several.
std::vector<std::string> screen_of(const std::string& output, size_t columns) {
  std::vector<std::string> lines{""};
  size_t column = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    if (output.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(std::min(column, lines.back().size()));
      i += 2;
    } else if (output[i] == '\r') {
      column = 0;
    } else if (output[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else {
      if (column == columns) {
        lines.emplace_back();
        column = 0;
      }
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = output[i];
    }
  }
  return lines;
}

/// The first field of each line.
std::vector<std::string> beginnings(std::vector<std::string> lines) {
  for (std::string& line : lines) line = line.substr(0, line.find("  "));
  return lines;
}

class ProgressTest : public testing::Test {
 protected:
  ProgressOptions options(bool terminal, int width = 200) {
    return {.total_steps = 1000,
            .out = out_.file(),
            .messages = out_.file(),  // as on a terminal, where both arrive at one place
            .terminal = terminal,
            .width = [width] { return width; },
            .clock = [this] { return now_; }};
  }

  static StepRecord record_of(int64_t step) {
    StepRecord record;
    record.step = step;
    record.loss = 2.5134;
    record.grad_norm = 0.8312;
    record.lr = 3e-4;
    record.tokens_per_s = 41234;
    record.matmul_percent = 57.3;
    record.memory["device"].total = {1, 1320702444};
    return record;
  }

  Captured out_;
  double now_ = 1000;
};

TEST_F(ProgressTest, TheLineSaysAllOfIt) {
  {
    Progress progress(options(true));
    progress.update(record_of(119));
    now_ += 0.5;
    progress.update(record_of(120));
  }
  const auto screen = screen_of(out_.text(), 200);
  EXPECT_EQ(screen, (std::vector<std::string>{
                        "step 120/1000  loss 2.513  norm 0.831  lr 3.0e-04  41.2k tok/s  1.23 GiB  "
                        "57% of limit  7m20s left",
                        ""}));
}

TEST_F(ProgressTest, ATerminalIsRedrawnNotScrolledAndNotTooOften) {
  Progress progress(options(true));
  for (int step = 1; step <= 50; ++step) {
    progress.update(record_of(step));
    now_ += 0.03;
  }
  const std::string text = out_.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
  // 1.5 seconds at ten drawings a second, each at the first step that is due: every 0.12 s.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 13);
  progress.finish();
  EXPECT_NE(screen_of(out_.text(), 200).at(0).find("step 50/1000"), std::string::npos);
}

TEST_F(ProgressTest, NeverWraps) {
  for (int width = 1; width <= 120; ++width) {
    Captured out;
    auto narrow = options(true, width);
    narrow.out = narrow.messages = out.file();
    {
      Progress progress(narrow);
      progress.update(record_of(1));
      now_ += 1;
      progress.update(record_of(2));
    }
    const auto screen = screen_of(out.text(), static_cast<size_t>(width));
    ASSERT_EQ(screen.size(), 2U) << width;
    EXPECT_TRUE(screen[0].starts_with(std::string("step 2/1000  loss 2.513").substr(0, screen[0].size())))
        << screen[0];
  }
}

TEST_F(ProgressTest, EightyColumnsKeepWhatIsNeededMost) {
  Progress progress(options(true, 80));
  progress.update(record_of(1));
  now_ += 1;
  progress.update(record_of(2));
  const std::string line = screen_of(out_.text(), 80).at(0);
  for (const char* field : {"step 2/1000", "loss 2.513", "tok/s", "GiB", "left"})
    EXPECT_NE(line.find(field), std::string::npos) << field;
  EXPECT_EQ(line.find("lr"), std::string::npos);
}

TEST_F(ProgressTest, MessagesAppearAboveTheLine) {
  {
    Progress progress(options(true));
    progress.update(record_of(1));
    log::warn("the disk is full");
    now_ += 1;
    StepRecord skipped = record_of(2);
    skipped.skipped = true;
    skipped.skip_reason = "overflow in h.0.w";
    progress.update(skipped);
    now_ += 1;
    StepRecord evaluated = record_of(3);
    evaluated.eval_loss = 2.58;
    progress.update(evaluated);
  }
  const auto screen = screen_of(out_.text(), 200);
  ASSERT_EQ(screen.size(), 5U);
  EXPECT_EQ(screen[0], "aliquot: warning: the disk is full");
  EXPECT_EQ(screen[1], "step 2 skipped: overflow in h.0.w");
  EXPECT_EQ(screen[2], "step 3  held-out loss 2.5800");
  EXPECT_TRUE(screen[3].starts_with("step 3/1000  loss 2.513")) << screen[3];
  EXPECT_EQ(screen[4], "");
}

TEST_F(ProgressTest, PipesGetPlainLinesNowAndThen) {
  {
    Progress progress(options(false));
    for (int step = 1; step <= 30; ++step) {
      progress.update(record_of(step));
      now_ += 0.5;
    }
    log::info("hello");
  }
  const std::string text = out_.text();
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const auto lines = screen_of(text, 1000);
  const std::vector<std::string> begins = beginnings(lines);
  EXPECT_EQ(begins, (std::vector<std::string>{"step 1/1000", "step 11/1000", "step 21/1000", "aliquot: hello",
                                              "step 30/1000", ""}));
}

TEST_F(ProgressTest, StepsPerPrintCountsSteps) {
  {
    auto counted = options(false);
    counted.steps_per_print = 10;
    Progress progress(counted);
    for (int step = 1; step <= 20; ++step) progress.update(record_of(step));
  }
  const std::vector<std::string> begins = beginnings(screen_of(out_.text(), 1000));
  EXPECT_EQ(begins, (std::vector<std::string>{"step 1/1000", "step 10/1000", "step 20/1000", ""}));
}

TEST_F(ProgressTest, FieldsThatAreNotKnownAreLeftOut) {
  {
    auto unknown = options(false);
    unknown.total_steps = 0;
    Progress progress(unknown);
    StepRecord record;
    record.step = 7;
    record.loss = std::nan("");
    progress.update(record);
  }
  EXPECT_EQ(out_.text(), "step 7  loss nan  lr 0.0e+00  0 tok/s\n");
}

TEST_F(ProgressTest, WithoutStepsNothingIsShown) {
  Progress(options(true)).finish();
  EXPECT_EQ(out_.text(), "");
}

TEST_F(ProgressTest, ThreadsMaySpeakMeanwhile) {
  {
    Progress progress(options(true));
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 100; ++i) log::info("thread {} message {}", t, i);
      });
    for (int step = 1; step <= 200; ++step) progress.update(record_of(step));
    for (std::thread& thread : threads) thread.join();
  }
  const auto screen = screen_of(out_.text(), 200);
  ASSERT_EQ(screen.size(), 402U);
  int messages = 0;
  for (const std::string& line : screen) messages += line.starts_with("aliquot: thread ") ? 1 : 0;
  EXPECT_EQ(messages, 400);
}

}  // namespace
}  // namespace aliquot
