#include "aliquot/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "aliquot/error.h"

namespace aliquot::safetensors {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // of the reference implementation

const std::map<std::string, int64_t>& dtypes() {
  static const std::map<std::string, int64_t> sizes{{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                                    {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                                    {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                                                    {"I64", 8},     {"U64", 8}, {"F64", 8}, {"C64", 8}};
  return sizes;
}

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw IoError(fmt::format("{}: {}", path.string(), what));
}

[[noreturn]] void fail_errno(const std::filesystem::path& path, std::string_view what) {
  fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

// JSON parsers keep the last of two equal keys; a file with two tensors of one name is wrong.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  const json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!header.is_object()) fail(path, "the header is no JSON object");
  if (!twice.empty()) fail(path, fmt::format("tensor {} is listed twice", twice));
  return header;
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

// ---- reading
// ---------------------------------------------------------------------------------------------------------

File::File(const std::filesystem::path& path) : path_(path) {
  map();
  try {
    parse();
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
      offsets_(std::move(other.offsets_)) {}

File::~File() {
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), bytes_);
}

void File::map() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno(path_, "cannot be opened");
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 8) {
    close(fd);
    fail(path_, "is no safetensors file: expected at least the 8 bytes of its header's size");
  }
  bytes_ = static_cast<size_t>(info.st_size);
  void* p = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (p == MAP_FAILED) fail_errno(path_, "cannot be mapped");
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
  std::map<size_t, std::pair<size_t, std::string>> by_begin;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    TensorInfo info{name, "", {}};
    size_t begin = 0, end = 0;
    try {
      info.dtype = entry.at("dtype").get<std::string>();
      info.shape = entry.at("shape").get<std::vector<int64_t>>();
      begin = entry.at("data_offsets").at(0).get<size_t>();
      end = entry.at("data_offsets").at(1).get<size_t>();
    } catch (const json::exception&) {
      fail(path_, fmt::format("tensor {}: expected dtype, shape and data_offsets", name));
    }
    if (dtype_bytes(info.dtype) == 0)
      fail(path_, fmt::format("tensor {}: dtype {} is not supported", name, info.dtype));
    for (const int64_t n : info.shape) {
      if (n < 0) fail(path_, fmt::format("tensor {}: a size is negative", name));
    }
    if (begin > end || end - begin != static_cast<size_t>(info.bytes())) {
      fail(path_, fmt::format("tensor {}: its offsets span {} bytes, dtype and shape need {}", name,
                              end - begin, info.bytes()));
    }
    if (end > begin && !by_begin.emplace(begin, std::pair(end, name)).second) {
      fail(path_, fmt::format("tensor {} overlaps another", name));
    }
    offsets_.emplace(name, std::pair(begin, end));
    tensors_.emplace(name, std::move(info));
  }
  size_t expected = 0;
  for (const auto& [begin, rest] : by_begin) {
    if (begin != expected)
      fail(path_, fmt::format("tensor {} begins at {}, expected {}: a hole or an overlap", rest.second, begin,
                              expected));
    expected = rest.first;
  }
  if (header_bytes_ + expected != bytes_) {
    fail(path_, fmt::format("has {} bytes, its header needs {}: truncated or damaged", bytes_,
                            header_bytes_ + expected));
  }
}

std::span<const std::byte> File::data(const std::string& name) const {
  const auto it = offsets_.find(name);
  if (it == offsets_.end()) fail(path_, fmt::format("has no tensor {}", name));
  return {base_ + header_bytes_ + it->second.first, it->second.second - it->second.first};
}

// ---- writing
// ---------------------------------------------------------------------------------------------------------

Writer::Writer(std::filesystem::path path, const std::vector<TensorInfo>& infos)
    : path_(std::move(path)), temporary_(path_.string() + ".part") {
  json header{{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const size_t i : file_order(infos)) {
    const TensorInfo& info = infos[i];
    header[info.name] = {
        {"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {offset, offset + info.bytes()}}};
    offset += info.bytes();
    order_.push_back(info);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno(temporary_, "cannot be created");
  const uint64_t size = text.size();
  put(&size, sizeof(size));
  put(text.data(), text.size());
}

Writer::~Writer() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void Writer::put(const void* data, size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd_, p + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_errno(path_, fmt::format("cannot write {} bytes", bytes - done));
    done += static_cast<size_t>(n);
  }
}

void Writer::write(const std::string& name, const void* data, size_t bytes) {
  check(next_ < order_.size() && order_[next_].name == name, "safetensors are written in file order");
  check(bytes == static_cast<size_t>(order_[next_].bytes()), "a tensor has the bytes its shape says");
  put(data, bytes);
  ++next_;
}

void Writer::finish() {
  check(next_ == order_.size(), "every announced tensor is written");
  if (fsync(fd_) != 0) fail_errno(path_, "cannot reach the disk");
  close(std::exchange(fd_, -1));
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) fail(path_, "cannot be renamed from its temporary name: " + error.message());
}

}  // namespace aliquot::safetensors
