// From the offload blocks of a config to stores: what lives on NVMe, and how it gets there.
#pragma once

#include <memory>

#include "aliquot/comm/comm.h"
#include "aliquot/config/config.h"
#include "aliquot/engine/optimizer_states.h"
#include "aliquot/layout/layout.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/meter.h"
#include "aliquot/pager/unit_store.h"

namespace aliquot {

class Offload {
 public:
  /// Opens files where `offload_param` or `offload_optimizer` says nvme. Throws IoError.
  Offload(const Config& config, std::shared_ptr<const Layout> layout, const Comm& comm,
          std::shared_ptr<Meter> meter);

  /// Collective. The store of `offload_param`, or the usual one.
  std::unique_ptr<UnitStore> make_unit_store(Spread params) const;
  /// `store` is what `make_unit_store` made.
  StatePlaces state_places(const UnitStore& store) const;

 private:
  Config config_;
  std::shared_ptr<const Layout> layout_;
  Comm comm_;
  std::shared_ptr<Meter> meter_;
  std::shared_ptr<NvmeStore> param_files_, optimizer_files_;  // the same if their paths are
};

}  // namespace aliquot
