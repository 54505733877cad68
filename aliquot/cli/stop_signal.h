// Ctrl-C in a rank: the first one asks for a clean end, the second one ends.
#pragma once

namespace aliquot {

/// From now on a first SIGINT only sets the flag below, and a second one ends the process at once with code
/// 130.
void watch_stop_signal();

/// Whether a stop was asked for. Ranks may see it at different steps: agree on it before acting
/// (Engine::request_stop).
bool stop_requested();

}  // namespace aliquot
