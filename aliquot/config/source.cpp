#include "aliquot/config/source.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "aliquot/error.h"

namespace aliquot {
namespace {

// Length of the UTF-8 character at `i`, or 0 if there is none.
size_t utf8_length(const std::string& text, size_t i) {
  const auto byte = [&](size_t k) {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
  };
  const unsigned first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(k) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool beyond = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

void require_text(const std::string& text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw ConfigError(fmt::format("{}: UTF-16 text; save the file as UTF-8", name));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw ConfigError(fmt::format("{}: the file is empty; expected a JSON object, {{ … }}", name));
  }
  for (size_t i = 0; i < text.size();) {
    const size_t length = text[i] == '\0' ? 0 : utf8_length(text, i);
    if (length == 0) {
      throw ConfigError(
          fmt::format("{}: not a text file (byte 0x{:02x} at offset {}); expected a JSON object in UTF-8",
                      name, static_cast<unsigned char>(text[i]), i));
    }
    i += length;
  }
}

std::optional<std::string> decode_base64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const uint32_t six = c >= 'A' && c <= 'Z'   ? static_cast<uint32_t>(c - 'A')
                         : c >= 'a' && c <= 'z' ? static_cast<uint32_t>(c - 'a' + 26)
                         : c >= '0' && c <= '9' ? static_cast<uint32_t>(c - '0' + 52)
                         : c == '-' || c == '+' ? 62U
                         : c == '_' || c == '/' ? 63U
                                                : 64U;
    if (six == 64) return std::nullopt;
    bits = (bits << 6) | six;
    if (++count == 4) {
      out += {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8), static_cast<char>(bits)};
      bits = 0;
      count = 0;
    }
  }
  if (count == 1) return std::nullopt;
  if (count == 3) out += {static_cast<char>(bits >> 10), static_cast<char>(bits >> 2)};
  if (count == 2) out += static_cast<char>(bits >> 4);
  return out;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::string text(static_cast<size_t>(kMaxConfigBytes) + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw ConfigError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  text.resize(static_cast<size_t>(in.gcount()));
  if (static_cast<int64_t>(text.size()) > kMaxConfigBytes) {
    throw ConfigError(
        fmt::format("{}: larger than {} MiB; is this a ds_config.json?", path, kMaxConfigBytes >> 20));
  }
  return text;
}

}  // namespace

ConfigSource read_config_source(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  ConfigSource source{.text = {}, .name = path};
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(fmt::format("{}: a folder; expected a ds_config.json", path));
  }
  if (std::filesystem::exists(status)) {
    source.text = read_file(path);
  } else {
    const std::optional<std::string> decoded = decode_base64(path);
    const size_t first = decoded ? decoded->find_first_not_of(" \t\r\n") : std::string::npos;
    if (first == std::string::npos || (*decoded)[first] != '{') {
      throw ConfigError(fmt::format("{}: no such file", path.substr(0, 200)));
    }
    source = {.text = *decoded, .name = "<base64>"};
  }
  require_text(source.text, source.name);
  return source;
}

}  // namespace aliquot
