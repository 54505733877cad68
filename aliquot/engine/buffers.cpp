#include "aliquot/engine/buffers.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "aliquot/error.h"

namespace aliquot {

BufferSync::BufferSync(std::vector<NamedTensor> buffers) {
  for (NamedTensor& buffer : buffers) {
    if (!buffer.tensor.defined()) continue;
    if (!buffer.tensor.device().is_cpu()) {
      throw UsageError(fmt::format("buffer {} is on {}; this build trains on the CPU", buffer.name,
                                   buffer.tensor.device().str()));
    }
    buffers_.push_back(std::move(buffer));
  }
}

std::string BufferSync::description() const {
  std::string text;
  for (const auto& [name, tensor] : buffers_) {
    text += fmt::format("{}:{}:{};", name, tensor.dtype().name(), fmt::join(tensor.sizes(), "x"));
  }
  return text;
}

std::vector<int64_t> BufferSync::versions() const {
  std::vector<int64_t> versions;
  for (const auto& [name, tensor] : buffers_) versions.push_back(static_cast<int64_t>(tensor._version()));
  return versions;
}

// A tensor made under inference mode counts no versions.
bool BufferSync::changed() const {
  for (const auto& [name, tensor] : buffers_) {
    if (tensor.is_inference()) return true;
  }
  return !sent_ || *sent_ != versions();
}

int64_t BufferSync::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : buffers_) total += static_cast<int64_t>(tensor.nbytes());
  return total;
}

void BufferSync::pack(std::vector<std::byte>& bytes) const {
  size_t offset = 0;
  for (const auto& [name, tensor] : buffers_) {
    const at::Tensor dense = tensor.contiguous();
    if (dense.nbytes() > 0) std::memcpy(bytes.data() + offset, dense.const_data_ptr(), dense.nbytes());
    offset += dense.nbytes();
  }
}

void BufferSync::unpack(const std::vector<std::byte>& bytes) const {
  const c10::AutoGradMode no_grad(false);
  size_t offset = 0;
  for (const auto& [name, tensor] : buffers_) {
    tensor.copy_(at::from_blob(const_cast<std::byte*>(bytes.data()) + offset, tensor.sizes(),
                               tensor.options().requires_grad(false)));
    offset += tensor.nbytes();
  }
}

void BufferSync::broadcast(const Comm& comm) {
  if (buffers_.empty() || comm.size() == 1) return;
  unsigned char news = comm.rank() == 0 && changed() ? 1 : 0;
  comm.broadcast(&news, sizeof(news), 0, "news of buffers");
  if (news == 0) return;
  std::vector<std::byte> bytes(static_cast<size_t>(total_bytes()));
  if (comm.rank() == 0) pack(bytes);
  comm.broadcast(bytes.data(), bytes.size(), 0, "buffers");
  if (comm.rank() != 0) {
    unpack(bytes);
  } else if (!buffers_[0].tensor.is_inference()) {
    sent_ = versions();
  }
}

}  // namespace aliquot
