#include "aliquot/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "aliquot/error.h"

namespace aliquot::safetensors {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // of the reference implementation

const std::map<std::string, int64_t>& dtypes() {
  static const std::map<std::string, int64_t> sizes{
      {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
      {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
      {"I64", 8},     {"U64", 8},         {"F64", 8},         {"C64", 8}};
  return sizes;
}

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw IoError(fmt::format("{}: {}", path.string(), what));
}

// JSON parsers keep the last of two equal keys; here two tensors of one name are an error. The header is
// three levels deep; what lies deeper is dropped, so that a hostile file cannot make millions of nested
// values.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    return !(opens && depth > 2);
  };
  if (!text.starts_with('{')) fail(path, "is no safetensors file: its header does not begin with '{'");
  json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!header.is_object()) fail(path, "is damaged: its header is no JSON object");
  if (!twice.empty()) fail(path, fmt::format("tensor {} is listed twice", twice));
  return header;
}

// Nothing unless `value` is an array of non-negative integers.
std::optional<std::vector<int64_t>> sizes_of(const json& entry, const char* key) {
  const auto it = entry.find(key);
  if (it == entry.end() || !it->is_array()) return std::nullopt;
  std::vector<int64_t> out;
  for (const json& n : *it) {
    if (!n.is_number_unsigned() || n.get<uint64_t>() > std::numeric_limits<int64_t>::max())
      return std::nullopt;
    out.push_back(n);
  }
  return out;
}

// Nothing if dtype and shape say more bytes than there are numbers.
std::optional<int64_t> bytes_of(const TensorInfo& info) {
  int64_t bytes = dtype_bytes(info.dtype);
  for (const int64_t n : info.shape) {
    if (__builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

int64_t dtype_bytes(const std::string& dtype) {
  const auto it = dtypes().find(dtype);
  return it == dtypes().end() ? 0 : it->second;
}

int64_t TensorInfo::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}
int64_t TensorInfo::bytes() const {
  return numel() * dtype_bytes(dtype);
}

std::vector<size_t> file_order(const std::vector<TensorInfo>& infos) {
  std::vector<size_t> order(infos.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t size_a = dtype_bytes(infos[a].dtype), size_b = dtype_bytes(infos[b].dtype);
    return size_a != size_b ? size_a > size_b : infos[a].name < infos[b].name;
  });
  return order;
}

File::File(const std::filesystem::path& path) : path_(path) {
  map();
  try {
    parse();
    check_ranges();
  } catch (...) {
    munmap(const_cast<std::byte*>(base_), bytes_);
    throw;
  }
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_),
      header_bytes_(other.header_bytes_),
      tensors_(std::move(other.tensors_)),
      ranges_(std::move(other.ranges_)) {}

File::~File() {
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), bytes_);
}

void File::map() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path_, fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 8) {
    close(fd);
    fail(path_, "is no safetensors file: expected at least the 8 bytes of its header's size");
  }
  bytes_ = static_cast<uint64_t>(info.st_size);
  void* p = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (p == MAP_FAILED) fail(path_, fmt::format("cannot be mapped: {}", std::strerror(error)));
  base_ = static_cast<const std::byte*>(p);
}

void File::parse() {
  uint64_t size = 0;
  std::memcpy(&size, base_, sizeof(size));
  if (size > kMaxHeader || size > bytes_ - 8) {
    fail(path_,
         fmt::format("is truncated or no safetensors file: its header claims {} bytes, the file has {}", size,
                     bytes_));
  }
  header_bytes_ = 8 + size;
  const json header = parse_header(path_, {reinterpret_cast<const char*>(base_) + 8, size});
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto dtype = entry.is_object() ? entry.find("dtype") : entry.end();
    const auto shape = entry.is_object() ? sizes_of(entry, "shape") : std::nullopt;
    const auto offsets = entry.is_object() ? sizes_of(entry, "data_offsets") : std::nullopt;
    if (dtype == entry.end() || !dtype->is_string() || !shape || !offsets || offsets->size() != 2) {
      fail(path_, fmt::format("tensor {}: expected \"dtype\", \"shape\" and \"data_offsets\": [begin, end], "
                              "whole numbers from 0",
                              name));
    }
    TensorInfo info{name, dtype->get<std::string>(), *shape};
    if (dtype_bytes(info.dtype) == 0) {
      fail(path_, fmt::format("tensor {}: dtype {} is not supported", name, info.dtype));
    }
    const Range range{static_cast<uint64_t>((*offsets)[0]), static_cast<uint64_t>((*offsets)[1])};
    const std::optional<int64_t> bytes = bytes_of(info);
    if (!bytes || range.begin > range.end || range.end - range.begin != static_cast<uint64_t>(*bytes)) {
      fail(path_, fmt::format("tensor {}: data_offsets are [{}, {}], but {} of shape [{}] needs {} bytes",
                              name, range.begin, range.end, info.dtype, fmt::join(info.shape, ", "),
                              bytes ? fmt::to_string(*bytes) : "too many"));
    }
    ranges_.emplace(name, range);
    tensors_.emplace(name, std::move(info));
  }
}

void File::check_ranges() const {
  std::vector<std::pair<Range, std::string_view>> sorted;
  for (const auto& [name, range] : ranges_) sorted.emplace_back(range, name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  const uint64_t available = bytes_ - header_bytes_;
  uint64_t expected = 0;
  for (const auto& [range, name] : sorted) {
    if (range.begin != expected) {
      fail(path_, fmt::format("tensor {} begins at {}, expected {}: a hole or an overlap", name, range.begin,
                              expected));
    }
    if (range.end > available) {
      fail(path_, fmt::format("is truncated: tensor {} ends at byte {} of the data, of which there are {}",
                              name, range.end, available));
    }
    expected = range.end;
  }
  if (expected != available) {
    fail(path_, fmt::format("has {} bytes after its last tensor: damaged", available - expected));
  }
}

std::span<const std::byte> File::data(const std::string& name) const {
  const auto it = ranges_.find(name);
  if (it == ranges_.end()) fail(path_, fmt::format("has no tensor {}", name));
  return {base_ + header_bytes_ + it->second.begin, it->second.end - it->second.begin};
}

}  // namespace aliquot::safetensors
