#include "aliquot/engine/offload.h"

#include <utility>

namespace aliquot {
namespace {

std::shared_ptr<NvmeStore> open_files(const OffloadConfig& part, const AioConfig& aio) {
  return std::make_shared<NvmeStore>(NvmeOptions{.paths = part.nvme_path,
                                                 .block_size = aio.block_size,
                                                 .queue_depth = aio.queue_depth,
                                                 .threads = aio.intra_op_parallelism});
}

}  // namespace

Offload::Offload(const Config& config, std::shared_ptr<const Layout> layout, const Comm& comm,
                 std::shared_ptr<Meter> meter)
    : config_(config), layout_(std::move(layout)), comm_(comm), meter_(std::move(meter)) {
  const OffloadConfig &params = config.zero.offload_param, &optimizer = config.zero.offload_optimizer;
  if (params.device == OffloadDevice::nvme) param_files_ = open_files(params, config.aio);
  if (optimizer.device != OffloadDevice::nvme) return;
  const bool shared = param_files_ != nullptr && params.nvme_path == optimizer.nvme_path;
  optimizer_files_ = shared ? param_files_ : open_files(optimizer, config.aio);
}

std::unique_ptr<UnitStore> Offload::make_unit_store(Spread params) const {
  Comm comm = comm_.channel("parameters");
  if (!param_files_) return UnitStore::create(layout_, params, std::move(comm), meter_);
  return std::make_unique<NvmeUnitStore>(layout_, std::move(comm), meter_, param_files_,
                                         config_.zero.offload_param.max_in_cpu);
}

StatePlaces Offload::state_places(const UnitStore& store) const {
  const OffloadConfig& optimizer = config_.zero.offload_optimizer;
  StatePlaces places;
  places.files = optimizer_files_;
  places.share = optimizer.ratio;
  if (param_files_) places.params = dynamic_cast<const NvmeUnitStore*>(&store);
  places.ring = {.buffers = optimizer.buffer_count,
                 .read_ahead = optimizer.pipeline_read,
                 .write_behind = optimizer.pipeline_write};
  places.tile_numel = std::min(places.tile_numel, config_.zero.sub_group_size);
  return places;
}

}  // namespace aliquot
