#pragma once

namespace sluice::comm {

/// Number of processes that an MPI launcher started together, from the environment; 1 without a
/// launcher.
int launched_processes();

}  // namespace sluice::comm
