// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace aliquot {

/// Bytes in binary units with three significant digits: "512 B", "1.50 KiB", "12.3 MiB", "128 GiB".
std::string human_bytes(int64_t bytes);

/// A count in decimal units with three significant digits: "950", "41.2k", "6.74B".
std::string human_count(double count);

/// Seconds in the two largest units: "8s", "3m12s", "1h04m", "2d03h"; "?" when not finite or negative.
std::string human_duration(double seconds);

}  // namespace aliquot
