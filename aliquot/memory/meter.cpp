#include "aliquot/memory/meter.h"

namespace aliquot {
namespace {
size_t index(Kind kind) {
  return static_cast<size_t>(kind);
}
size_t index(Place place) {
  return static_cast<size_t>(place);
}
}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, kKinds> names{"params",   "grads",   "master", "moments",
                                                       "gathered", "buckets", "staging"};
  return names[index(kind)];
}

std::string_view name_of(Place place) {
  constexpr std::array<std::string_view, kPlaces> names{"device", "host", "nvme"};
  return names[index(place)];
}

void Meter::Count::add(int64_t bytes) {
  const int64_t value = now.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (value > seen && !peak.compare_exchange_weak(seen, value)) {
  }
}

void Meter::add(Kind kind, Place place, int64_t bytes) {
  counts_[index(place)][index(kind)].add(bytes);
  totals_[index(place)].add(bytes);
}

int64_t Meter::current(Kind kind, Place place) const {
  return counts_[index(place)][index(kind)].now;
}
int64_t Meter::peak(Kind kind, Place place) const {
  return counts_[index(place)][index(kind)].peak;
}
int64_t Meter::current(Place place) const {
  return totals_[index(place)].now;
}
int64_t Meter::peak(Place place) const {
  return totals_[index(place)].peak;
}

void Meter::reset_peaks() {
  for (size_t place = 0; place < kPlaces; ++place) {
    for (Count& count : counts_[place]) count.peak = count.now.load();
    totals_[place].peak = totals_[place].now.load();
  }
}

}  // namespace aliquot
