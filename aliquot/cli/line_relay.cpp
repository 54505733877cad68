#include "aliquot/cli/line_relay.h"

namespace aliquot {
namespace {

constexpr size_t kLongest = size_t{64} << 10;

}  // namespace

void LineRelay::feed(std::string_view bytes) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    open_ += bytes.substr(0, end);
    pass(open_);
    open_.clear();
  }
  open_ += bytes;
  for (; open_.size() > kLongest; open_.erase(0, kLongest)) pass(std::string_view(open_).substr(0, kLongest));
}

void LineRelay::finish() {
  if (!open_.empty()) pass(open_);
  open_.clear();
}

void LineRelay::pass(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_not_of(" \t") != std::string_view::npos) last_ = line;
  std::string whole = prefix_;
  whole += line;
  whole += '\n';
  sink_(whole);
}

}  // namespace aliquot
