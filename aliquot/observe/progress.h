// The progress of a run: one line that redraws itself on a terminal, plain lines now and then elsewhere.
//
//   step 120/1000  loss 2.513  norm 0.83  lr 3.0e-04  41.2k tok/s  1.23 GiB  57% of limit  3m12s left
//
// On a terminal the line never wraps: what does not fit is left out, the least needed first. Skipped steps
// and held-out losses are lines of their own, in both forms. While a Progress lives it also carries
// aliquot/log.h's messages, so that they appear above the line and do not tear it. Thread-safe.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "aliquot/observe/record.h"

namespace aliquot {

struct ProgressOptions {
  int64_t total_steps = 0;      ///< 0: not known, no time left
  int64_t steps_per_print = 0;  ///< DeepSpeed's: plain lines each so many steps; 0: by time
  std::FILE* out = stdout;
  std::FILE* messages = stderr;
  std::optional<bool> terminal{};  ///< unset: whether `out` is one, and not a dumb one
  std::function<int()>
      width;  ///< columns; unset: asked of the terminal at every drawing, 80 if it does not know
  std::function<double()> clock{};  ///< seconds; unset: the steady clock
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows a step that has just ended.
  void update(const StepRecord& record);

  /// Writes lines to `messages`, above the line. `text` ends in a newline.
  void message(std::string_view text);

  /// Shows the last step as a lasting line. The destructor calls it too.
  void finish();

 private:
  std::string format(const StepRecord& record, size_t width) const;
  std::string time_left(const StepRecord& record) const;
  void print(std::string_view line);
  void draw();
  void erase();

  ProgressOptions options_;
  bool terminal_;
  std::mutex mutex_;
  std::optional<StepRecord> last_;
  double first_end_ = 0;  // when the first step seen here ended
  int64_t first_step_seen_ = 0;
  double shown_at_ = 0;  // when last_ was last drawn or printed
  bool shown_ = false, drawn_ = false, finished_ = false;
};

}  // namespace aliquot
