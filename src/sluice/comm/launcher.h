#pragma once

namespace sluice::comm {

/// Processes that an MPI launcher started together, as the environment says; 1 if none did.
int launched_processes();

}  // namespace sluice::comm
