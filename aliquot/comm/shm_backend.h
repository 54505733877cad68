// The shared-memory collectives as a c10d backend, for code that speaks to process groups.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "aliquot/comm/shm_group.h"
#include "aliquot/comm/store.h"

namespace aliquot {

/// Takes dense, contiguous CPU tensors of any dtype. Every operation is complete when it returns; operations
/// that it lacks, sums among them, throw c10d's own "does not support". Errors are those of Comm (comm.h).
class ShmBackend final : public c10d::Backend {
 public:
  explicit ShmBackend(std::unique_ptr<shm::Group> group);
  /// Collective; the ranks, all of this host, meet in `store`. Throws CommError.
  static c10::intrusive_ptr<ShmBackend> create(const Store& store, int rank, int size,
                                               std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "aliquot"; }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  /// Counts are rows of the first dimension; none: equal parts.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_counts,
                                               std::vector<int64_t>& input_counts,
                                               const c10d::AllToAllOptions& options) override;

  /// Tells the peers, who throw from whatever they wait in.
  void abort() override;

 private:
  c10::intrusive_ptr<c10d::Work> done(c10d::OpType op) const;

  std::unique_ptr<shm::Group> group_;
};

}  // namespace aliquot
