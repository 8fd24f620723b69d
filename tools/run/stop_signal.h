#pragma once

namespace sluice::tool {

/// From now on the first SIGHUP (unless it is ignored), SIGINT or SIGTERM is remembered and does
/// not end the process. A second signal ends the process.
void catch_stop_signals();
/// Returns the signal that was received; 0 before the first one.
int stop_signal();

/// From now on SIGUSR1 is remembered, and does not end the process.
void catch_save_signal();
/// Whether SIGUSR1 was received since the last call.
bool take_save_signal();

}  // namespace sluice::tool
