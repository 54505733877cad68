// A TCP port of this host for the ranks' store, kept free for them.
#pragma once

#include "aliquot/cli/rank_process.h"

namespace aliquot {

/// Binds a free port and holds it, without listening. Linux gives a port that is held so to nobody who asks
/// for any port, yet lets rank 0's store bind it by number, since both set SO_REUSEADDR: no moment is left in
/// which another job could take it.
class MasterPort {
 public:
  /// Throws Error if the system has no free port.
  MasterPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

}  // namespace aliquot
