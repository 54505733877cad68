#include "aliquot/observe/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace aliquot {

namespace {

/// The table of crc32c (Castagnoli, reflected polynomial 0x82f63b78), a byte at a time.
constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    table[byte] = crc;
  }
  return table;
}

/// TFRecord's mask keeps a checksum of data that themselves hold checksums from cancelling out.
uint32_t masked_crc(std::string_view data) {
  static constexpr auto kTable = make_crc_table();
  uint32_t crc = 0xffffffff;
  for (const char c : data) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xa282ead8;
}

template <typename T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// A protobuf field begins with number << 3 | wire type.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string key(uint64_t number, WireType type) {
  return varint(number << 3 | type);
}

std::string bytes_field(uint64_t number, std::string_view bytes) {
  return key(number, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string value_message(const MonitorEvent& event) {
  return bytes_field(1, event.tag) + key(2, kFixed32) + little_endian(static_cast<float>(event.value));
}

std::string event_message(int64_t step, std::string_view payload) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, kFixed64) + little_endian(now) + key(2, kVarint) + varint(static_cast<uint64_t>(step)) +
         std::string(payload);
}

std::string record(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) + little_endian(masked_crc(data));
}

std::filesystem::path new_file_in(const std::filesystem::path& folder) {
  static std::atomic<int> count{0};
  std::array<char, 256> name{};
  const bool named = gethostname(name.data(), name.size() - 1) == 0;
  const std::string_view host = named ? name.data() : "localhost";
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", now, host, getpid(), count++);
}

}  // namespace

TensorBoardMonitor::TensorBoardMonitor(const std::filesystem::path& folder) : file_(new_file_in(folder)) {
  file_.append(record(event_message(0, bytes_field(3, "brain.Event:2"))));
}

void TensorBoardMonitor::write(const std::vector<MonitorEvent>& events) {
  for (auto event = events.begin(); event != events.end();) {
    const int64_t samples = event->samples;
    std::string summary;
    for (; event != events.end() && event->samples == samples; ++event)
      summary += bytes_field(1, value_message(*event));
    file_.append(record(event_message(samples, bytes_field(5, summary))));
  }
}

}  // namespace aliquot
