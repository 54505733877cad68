// The sockets over which rank 0 hands shared memory to the other ranks of its host. Torch-free.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aliquot/comm/fd_socket.h"

namespace aliquot::shm {

class SharedMappings;

/// One rank's end: rank 0 holds a socket to each other rank, the others one to rank 0. What rank 0 gives lies
/// in the sockets until it is taken, so nobody waits if a collective comes in between.
class Links {
 public:
  /// Rank 0's: waits for the ranks 1 to world - 1 at `listener`. Throws CommError that names those missing at
  /// `deadline`.
  static Links accept(const Listener& listener, int world, Deadline deadline);
  /// Another rank's: connects to rank 0's listener.
  static Links join(const std::string& listener, int rank);
  /// For ranks that are threads of this process: they also share their mappings, so that the thread sanitizer
  /// sees who touches what.
  static std::vector<Links> among_threads(int world);

  void give(const Fd& fd);  ///< rank 0: to all others
  Fd take();                ///< the others: what was given first and not yet taken; it must be there
  Fd take_by(Deadline deadline);
  Links give_links();  ///< rank 0: for an independent user
  Links take_links();

  std::shared_ptr<SharedSegment> map(const Fd& memory, size_t bytes) const;

 private:
  std::vector<Fd> sockets_;
  std::shared_ptr<SharedMappings> mappings_;  // null between processes
};

}  // namespace aliquot::shm
