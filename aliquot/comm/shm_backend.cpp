#include "aliquot/comm/shm_backend.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "aliquot/comm/connect_shm.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

class Done final : public c10d::Work {
 public:
  Done(int rank, c10d::OpType op) : Work(rank, op) { finish(); }
  bool wait(std::chrono::milliseconds) override { return true; }
};

void check_tensor(const at::Tensor& tensor, std::string_view op) {
  if (tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous()) return;
  throw UsageError(fmt::format("{}: expected a dense, contiguous CPU tensor", op));
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, std::string_view op) {
  if (tensors.size() != 1) throw UsageError(fmt::format("{}: expected 1 tensor, got {}", op, tensors.size()));
  check_tensor(tensors[0], op);
  return tensors[0];
}

/// Bytes to or from each rank: `counts` rows of `tensor`, or equal parts.
std::vector<size_t> parts_of(const at::Tensor& tensor, const std::vector<int64_t>& counts, int world) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<int64_t> each = counts;
  if (each.empty() && rows % world == 0) each.assign(static_cast<size_t>(world), rows / world);
  const bool negative = std::ranges::any_of(each, [](int64_t n) { return n < 0; });
  if (negative || std::accumulate(each.begin(), each.end(), int64_t{0}) != rows) {
    throw UsageError(fmt::format("alltoall_base: the parts do not add up to the tensor's {} rows", rows));
  }
  const size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  std::vector<size_t> bytes;
  for (const int64_t n : each) bytes.push_back(static_cast<size_t>(n) * row_bytes);
  return bytes;
}

}  // namespace

ShmBackend::ShmBackend(std::unique_ptr<shm::Group> group)
    : Backend(group->rank(), group->size()), group_(std::move(group)) {}

c10::intrusive_ptr<ShmBackend> ShmBackend::create(const Store& store, int rank, int size,
                                                  std::chrono::milliseconds timeout) {
  const Hosts hosts = find_hosts(store, rank, size);
  if (!hosts.one) {
    throw CommError(fmt::format("backend aliquot needs all ranks on one host ({})", hosts.table));
  }
  ShmJoin join = join_shm(store, {rank, size, timeout, hosts.peers});
  if (!join.group) throw CommError(join.problem);
  return c10::make_intrusive<ShmBackend>(std::move(join.group));
}

c10::intrusive_ptr<c10d::Work> ShmBackend::done(c10d::OpType op) const {
  return c10::make_intrusive<Done>(getRank(), op);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::barrier(const c10d::BarrierOptions&) {
  group_->barrier("barrier");
  return done(c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                     const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  group_->broadcast(tensor.data_ptr(), tensor.nbytes(), static_cast<int>(options.rootRank), "broadcast");
  return done(c10d::OpType::BROADCAST);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions&) {
  check_tensor(input, "_allgather_base");
  check_tensor(output, "_allgather_base");
  if (output.dtype() != input.dtype() || output.numel() != input.numel() * getSize()) {
    throw UsageError(
        "_allgather_base: the output must be of the input's dtype and hold as many of it as there are ranks");
  }
  group_->all_gather(input.const_data_ptr(), output.data_ptr(), input.nbytes(), "_allgather_base");
  return done(c10d::OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions&) {
  const at::Tensor& input = only(inputs, "allgather");
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(getSize())) {
    throw UsageError("allgather: expected one list of as many outputs as there are ranks");
  }
  for (const at::Tensor& output : outputs[0]) {
    check_tensor(output, "allgather");
    if (output.dtype() != input.dtype() || output.numel() != input.numel()) {
      throw UsageError("allgather: outputs must be of the input's dtype and size");
    }
  }
  // One rank after the other, straight into its tensor.
  for (int r = 0; r < getSize(); ++r) {
    const at::Tensor& output = outputs[0][static_cast<size_t>(r)];
    if (r == getRank()) output.copy_(input.view_as(output));
    group_->broadcast(output.data_ptr(), output.nbytes(), r, "allgather");
  }
  return done(c10d::OpType::ALLGATHER);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                         std::vector<int64_t>& output_counts,
                                                         std::vector<int64_t>& input_counts,
                                                         const c10d::AllToAllOptions&) {
  check_tensor(input, "alltoall_base");
  check_tensor(output, "alltoall_base");
  group_->all_to_all(input.const_data_ptr(), parts_of(input, input_counts, getSize()), output.data_ptr(),
                     parts_of(output, output_counts, getSize()), "alltoall_base");
  return done(c10d::OpType::ALLTOALL_BASE);
}

void ShmBackend::abort() {
  group_->abort("the process group was aborted");
}

}  // namespace aliquot
