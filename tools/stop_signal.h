#pragma once

namespace sluice::tool {

/// From now on SIGHUP (unless it is ignored), SIGINT and SIGTERM are remembered instead of ending
/// the process; a second one ends it.
void catch_stop_signals();
/// The signal that came, 0 if none did.
int stop_signal();

}  // namespace sluice::tool
