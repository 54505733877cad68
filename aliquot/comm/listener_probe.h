// Whether somebody listens at an address yet. No torch.
#pragma once

#include <chrono>
#include <string>

namespace aliquot {

/// Returns as soon as host:port takes a connection (which is closed at once). Throws CommError after
/// `timeout`.
void wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace aliquot
