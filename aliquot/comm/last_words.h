// Why a connection ended, where the transport itself only says that it did: ranks that fail leave word in the
// store, and whoever leaves none is the one that is missing.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "aliquot/comm/peers.h"
#include "aliquot/comm/store.h"

namespace aliquot {

class LastWords {
 public:
  LastWords(Store store, int rank, int world, std::shared_ptr<const Peers> peers);
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  /// The store ends with rank 0, so after a failure rank 0 stays a moment, until the others have read.
  ~LastWords();

  /// This rank fails with `message`. The first to say so is believed.
  void leave(std::string_view message);

  /// What to tell the person about `what`, which failed here with the transport's `error` at the place
  /// `where`, the same on all ranks. Takes up to a second and a half, for the others to fail as well.
  std::string explain(std::string_view what, std::string_view where, std::string_view error);

 private:
  struct Desk;
  std::shared_ptr<Desk> desk_;
};

}  // namespace aliquot
