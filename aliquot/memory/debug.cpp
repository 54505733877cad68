#include "aliquot/memory/debug.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace aliquot::debug {
namespace {

bool asked_for(std::string_view flag) {
  const char* value = std::getenv("ALIQUOT_DEBUG");
  return value != nullptr && std::string_view(value).find(flag) != std::string_view::npos;
}

std::atomic<bool>& poison_flag() {
  static std::atomic<bool> flag{asked_for("poison")};
  return flag;
}

std::atomic<bool>& guard_flag() {
  static std::atomic<bool> flag{asked_for("pager")};
  return flag;
}

}  // namespace

bool poisoning() {
  return poison_flag();
}
void set_poisoning(bool on) {
  poison_flag() = on;
}

bool guarding() {
  return guard_flag();
}
void set_guarding(bool on) {
  guard_flag() = on;
}

void poison(void* data, int64_t bytes) {
  if (!poisoning()) return;
  constexpr float value = 7777.0F;
  auto* p = static_cast<std::byte*>(data);
  int64_t i = 0;
  for (; i + 4 <= bytes; i += 4) std::memcpy(p + i, &value, 4);
  for (; i < bytes; ++i) p[i] = std::byte{0x7f};
}

}  // namespace aliquot::debug
