// Which unit comes after which: learnt from use, believed where the last two visits agree, never invalidated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace aliquot {

/// What the program is doing when it touches a unit.
enum class Mode { forward, backward, no_grad };

/// Not thread-safe: the pager calls it under its lock.
class Predictor {
 public:
  explicit Predictor(int units) : next_(static_cast<size_t>(units) * 3) {}

  /// Unit `unit` was touched in `mode`, after whichever was touched before. Repeated touches of one unit
  /// count once.
  void touched(int unit, Mode mode) {
    const Place here{unit, mode};
    if (last_ && last_->unit == unit && last_->mode == mode) return;
    if (last_) {
      Entry& entry = entry_of(*last_);
      entry.agreed = entry.next && *entry.next == here;
      entry.next = here;
    }
    last_ = here;
  }

  /// Elements that will be touched between the last touch and the next use of `unit`, by following the table
  /// from the last touch; nullopt where it does not lead there. `numel[u]` are the elements of unit u.
  std::optional<int64_t> distance_to(int unit, const std::vector<int64_t>& numel) const {
    if (!last_) return std::nullopt;
    int64_t elements = 0;
    Place here = *last_;
    for (size_t steps = 0; steps < next_.size(); ++steps) {
      const Entry& entry = entry_of(here);
      if (!entry.next || !entry.agreed) return std::nullopt;
      here = *entry.next;
      if (here.unit == unit) return elements;
      elements += numel[static_cast<size_t>(here.unit)];
    }
    return std::nullopt;
  }

 private:
  struct Place {
    int unit;
    Mode mode;
    bool operator==(const Place&) const = default;
  };
  struct Entry {
    std::optional<Place> next;
    bool agreed = false;
  };
  Entry& entry_of(const Place& p) {
    return next_[static_cast<size_t>(p.unit) * 3 + static_cast<size_t>(p.mode)];
  }
  const Entry& entry_of(const Place& p) const {
    return next_[static_cast<size_t>(p.unit) * 3 + static_cast<size_t>(p.mode)];
  }

  std::vector<Entry> next_;
  std::optional<Place> last_;
};

}  // namespace aliquot
