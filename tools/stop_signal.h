#pragma once

namespace sluice::tool {

/// From now on SIGHUP (unless it is ignored), SIGINT and SIGTERM are remembered instead of ending
/// the process; a second one ends it.
void catch_stop_signals();
/// Returns the signal that was received; 0 before the first one.
int stop_signal();

}  // namespace sluice::tool
