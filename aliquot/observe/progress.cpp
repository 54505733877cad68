#include "aliquot/observe/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "aliquot/log.h"
#include "aliquot/observe/human.h"

namespace aliquot {

namespace {

constexpr double kRedrawSeconds = 0.1;  // faster is not seen, and a slow terminal must not slow training
constexpr double kPlainSeconds = 5;     // a day of training stays below 20,000 lines

bool is_terminal(std::FILE* file) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(file)) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int columns_of(std::FILE* file) {
  winsize size{};
  return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Field {
  std::string text;
  int rank;  // the highest leaves first where there is no room
};

std::string join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

/// The fields that fit in `width` columns, in their order.
std::string fit(std::vector<Field> fields, size_t width) {
  while (fields.size() > 1 && join(fields).size() > width)
    fields.erase(std::max_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.rank < b.rank; }));
  return join(fields).substr(0, width);
}

const PlaceMemory* shown_memory(const StepRecord& record) {
  if (record.memory.empty()) return nullptr;
  const auto device = record.memory.find("device");
  return device != record.memory.end() ? &device->second : &record.memory.begin()->second;
}

}  // namespace

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), terminal_(options_.terminal.value_or(is_terminal(options_.out))) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (!options_.width) options_.width = [out = options_.out] { return columns_of(out); };
  log::set_sink([this](std::string_view line) { message(line); });
}

Progress::~Progress() {
  finish();
}

void Progress::update(const StepRecord& record) {
  const std::scoped_lock lock(mutex_);
  const double now = options_.clock();
  const bool first = !last_;
  if (first) {
    first_end_ = now;
    first_step_seen_ = record.step;
  }
  last_ = record;
  shown_ = false;
  if (record.skipped) print(fmt::format("step {} skipped: {}", record.step, record.skip_reason));
  if (record.eval_loss) print(fmt::format("step {}  held-out loss {:.4f}", record.step, *record.eval_loss));
  const double since = now - shown_at_;
  const bool by_count = options_.steps_per_print > 0;
  if (terminal_
          ? first || since >= kRedrawSeconds
          : first || (by_count ? record.step % options_.steps_per_print == 0 : since >= kPlainSeconds)) {
    terminal_ ? draw() : print(format(record, std::string::npos));
    shown_ = true;
    shown_at_ = now;
  }
}

void Progress::message(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  const bool redraw = drawn_;
  erase();
  std::fflush(options_.out);
  std::fwrite(text.data(), 1, text.size(), options_.messages);
  std::fflush(options_.messages);
  if (redraw) draw();
}

void Progress::finish() {
  {
    const std::scoped_lock lock(mutex_);
    if (finished_) return;
    finished_ = true;
    if (last_ && (terminal_ || !shown_))
      print(
          format(*last_, terminal_ ? static_cast<size_t>(std::max(options_.width(), 1)) : std::string::npos));
  }
  log::set_sink({});
}

void Progress::print(std::string_view line) {
  erase();
  fmt::print(options_.out, "{}\n", line);
  std::fflush(options_.out);
}

void Progress::draw() {
  // The last column stays free: many terminals wrap as soon as it is written.
  const auto width = static_cast<size_t>(std::max(options_.width() - 1, 1));
  fmt::print(options_.out, "\r{}\x1b[K", format(*last_, width));
  std::fflush(options_.out);
  drawn_ = true;
}

void Progress::erase() {
  if (drawn_) fmt::print(options_.out, "\r\x1b[K");
  drawn_ = false;
}

std::string Progress::format(const StepRecord& record, size_t width) const {
  std::vector<Field> fields;
  fields.push_back({options_.total_steps > 0 ? fmt::format("step {}/{}", record.step, options_.total_steps)
                                             : fmt::format("step {}", record.step),
                    0});
  fields.push_back({fmt::format("loss {:.3f}", record.loss), 1});
  if (record.grad_norm) fields.push_back({fmt::format("norm {:.3g}", *record.grad_norm), 5});
  fields.push_back({fmt::format("lr {:.1e}", record.lr), 7});
  fields.push_back({fmt::format("{} tok/s", human_count(record.tokens_per_s)), 2});
  if (const PlaceMemory* memory = shown_memory(record))
    fields.push_back({human_bytes(memory->total.peak), 4});
  if (record.matmul_percent > 0)
    fields.push_back({fmt::format("{:.0f}% of limit", record.matmul_percent), 6});
  if (const std::string left = time_left(record); !left.empty()) fields.push_back({left + " left", 3});
  return fit(std::move(fields), width);
}

std::string Progress::time_left(const StepRecord& record) const {
  const int64_t remaining = options_.total_steps - record.step, timed = record.step - first_step_seen_;
  // The first step warms up, and before the second there is nothing to go by.
  if (remaining <= 0 || timed <= 0) return "";
  const double per_step = (options_.clock() - first_end_) / static_cast<double>(timed);
  return human_duration(per_step * static_cast<double>(remaining));
}

}  // namespace aliquot
