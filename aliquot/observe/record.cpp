#include "aliquot/observe/record.h"

#include "aliquot/memory/meter.h"

namespace aliquot {

std::map<std::string, PlaceMemory> read_memory(const Meter& meter) {
  std::map<std::string, PlaceMemory> memory;
  for (int p = 0; p < kPlaces; ++p) {
    const auto place = static_cast<Place>(p);
    if (meter.peak(place) == 0) continue;
    PlaceMemory& entry = memory[std::string(name_of(place))];
    entry.total = {meter.current(place), meter.peak(place)};
    for (int k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      if (meter.peak(kind, place) > 0)
        entry.kinds[std::string(name_of(kind))] = {meter.current(kind, place), meter.peak(kind, place)};
    }
  }
  return memory;
}

}  // namespace aliquot
