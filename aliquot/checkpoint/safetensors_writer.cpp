#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "aliquot/checkpoint/durable.h"
#include "aliquot/checkpoint/safetensors.h"
#include "aliquot/error.h"

namespace aliquot::safetensors {
namespace {

// By hand: the reference writer keeps the keys in file order, which a sorted JSON object would not.
std::string header_of(const std::vector<TensorInfo>& order) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const TensorInfo& info : order) {
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(info.name).dump(), info.dtype, fmt::join(info.shape, ","), offset,
                        offset + info.bytes());
    offset += info.bytes();
  }
  text += '}';
  return text.append((8 - text.size() % 8) % 8, ' ');
}

std::vector<TensorInfo> ordered(const std::vector<TensorInfo>& infos) {
  std::vector<TensorInfo> out;
  for (const size_t i : file_order(infos)) {
    check(dtype_bytes(infos[i].dtype) > 0, "a tensor to write has a dtype of safetensors");
    check(out.empty() || out.back().name != infos[i].name, "tensors to write have names of their own");
    out.push_back(infos[i]);
  }
  return out;
}

}  // namespace

Writer::Writer(std::filesystem::path path, const std::vector<TensorInfo>& infos)
    : path_(std::move(path)), temporary_(path_.string() + ".part"), order_(ordered(infos)) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw IoError(fmt::format("{}: cannot be created: {}", temporary_.string(), std::strerror(errno)));
  }
  temporary_exists_ = true;
}

Writer::Writer(Writer&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      order_(std::move(other.order_)),
      next_(other.next_),
      header_written_(other.header_written_),
      fd_(std::exchange(other.fd_, -1)),
      temporary_exists_(std::exchange(other.temporary_exists_, false)) {}

Writer::~Writer() {
  if (fd_ >= 0) close(fd_);
  if (temporary_exists_) unlink(temporary_.c_str());
}

void Writer::put(const void* data, size_t bytes, std::string_view what) {
  const auto* p = static_cast<const std::byte*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd_, p + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw IoError(fmt::format("{}: cannot write {} ({} of its {} bytes are missing): {}", path_.string(),
                                what, bytes - done, bytes, std::strerror(errno)));
    }
    done += static_cast<size_t>(n);
  }
}

// The header waits for the first tensor or the end, so that no constructor can fail with a file half open.
void Writer::put_header() {
  if (std::exchange(header_written_, true)) return;
  const std::string text = header_of(order_);
  const uint64_t size = text.size();
  put(&size, sizeof(size), "its header");
  put(text.data(), text.size(), "its header");
}

void Writer::write(const std::string& name, const void* data, size_t bytes) {
  check(next_ < order_.size() && order_[next_].name == name, "safetensors are written in file order");
  check(bytes == static_cast<size_t>(order_[next_].bytes()), "a tensor has the bytes its shape says");
  put_header();
  put(data, bytes, name);
  ++next_;
}

void Writer::seal() {
  check(next_ == order_.size(), "every announced tensor is written");
  put_header();
  const int synced = fsync(fd_);
  const int error = errno;
  // Some file systems report a failed write only here.
  if (close(std::exchange(fd_, -1)) != 0 || synced != 0) {
    throw IoError(fmt::format("{}: cannot reach the disk: {}", path_.string(),
                              std::strerror(synced != 0 ? error : errno)));
  }
}

void Writer::publish() {
  check(fd_ < 0 && temporary_exists_, "a file is sealed before it gets its name");
  rename_durably(temporary_, path_);
  temporary_exists_ = false;
}

}  // namespace aliquot::safetensors
