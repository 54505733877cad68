// An owned piece of memory, aligned to 64 bytes (staging and gathered memory to pages), counted by a Meter
// under a kind and a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "aliquot/memory/meter.h"

namespace aliquot {

/// Every segment, slice and buffer starts on this many bytes ([Note: arithmetic] A7).
inline constexpr int64_t kAlignment = 64;

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Host memory. Zero-filled, except that scratch memory holds poison under ALIQUOT_DEBUG=poison (debug.h), so
/// that a read before the first write shows. Movable; an empty one holds nothing. Throws std::bad_alloc.
class Buffer {
 public:
  enum class Use { state, scratch };

  Buffer() = default;
  Buffer(std::shared_ptr<Meter> meter, Kind kind, int64_t bytes, Use use = Use::state);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Meter> meter_;
  Kind kind_ = Kind::staging;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace aliquot
