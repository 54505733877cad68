// Where the bytes of units live, and how a whole unit is had from the ranks' slices.
//
//   replicated            every rank holds every unit (stages 0–2)
//   shared segment        stage 3 on one host: a unit is one piece of shared memory in which each rank owns
//   its slice; the
//                         gathered unit is the segment itself, so gathering copies nothing and needs no other
//                         rank
//   collective            stage 3 between hosts: slices are private, a gather is an all-gather that all ranks
//   enter
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "aliquot/comm/comm.h"
#include "aliquot/layout/layout.h"
#include "aliquot/layout/placement.h"
#include "aliquot/memory/meter.h"

namespace aliquot {

class UnitStore {
 public:
  /// Collective. `comm` is used for gathers and publishing and by nothing else; allocates all units,
  /// zero-filled.
  static std::unique_ptr<UnitStore> create(std::shared_ptr<const Layout> layout, Spread params, Comm comm,
                                           std::shared_ptr<Meter> meter);
  virtual ~UnitStore() = default;

  /// This rank's slice in compute dtype, writable: between entering a step and publishing, or at
  /// construction. Null if it is not in memory: then `read_slice` and `write_slice` move it.
  virtual std::byte* slice(int unit) = 0;
  /// Bytes of this rank's slice from `offset` on.
  virtual void read_slice(int unit, int64_t offset, std::span<std::byte> out);
  virtual void write_slice(int unit, int64_t offset, std::span<const std::byte> bytes);
  /// The whole unit, writable; null unless replicated.
  virtual std::byte* whole(int unit) = 0;

  /// The whole unit, readable until `release`.
  virtual const std::byte* gather(int unit) = 0;
  virtual void release(int unit) = 0;
  virtual bool is_gathered(int unit) const = 0;

  /// Collective: makes the slices that the ranks have written visible to all, for all units (trainable ones
  /// only). `replicated_update`: every rank has written the whole already (stage 0).
  virtual void publish(bool replicated_update) = 0;

  /// Collective: the same for one unit, after this rank's slice, or the whole where replicated, was written.
  virtual void refresh(int unit) = 0;

  /// Where unit `unit` is always mapped, gathered or not; null if it is not.
  virtual const std::byte* mapped(int) const { return nullptr; }

  /// Whether parameters get ordinary memory of their own when the engine goes.
  virtual bool outlives_engine() const { return true; }
  /// Whether a gather needs other ranks to take part.
  virtual bool gathers_collectively() const = 0;
};

}  // namespace aliquot
