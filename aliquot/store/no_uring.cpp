// In place of uring_engine.cpp where liburing was not found.
#include "aliquot/store/io_engine.h"

namespace aliquot {

std::unique_ptr<IoEngine> make_uring_engine(int64_t, std::string& why_not) {
  why_not = "this build has no liburing (Debian: liburing-dev)";
  return nullptr;
}

}  // namespace aliquot
