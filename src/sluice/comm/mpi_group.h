#pragma once
#include <memory>
#include <string>

namespace sluice::runtime {
class ProcessGroup;
}

namespace sluice::comm {

/// Name and version of the MPI library of this build ("Open MPI v4.1.4"); "none" without MPI.
std::string mpi_version();

/// Joins the group of processes that a launcher started (comm/launcher.h). Returns null if it has
/// only one process. Call this once, on the main thread. Destroying the group leaves it. If a
/// process has failed or is lost, leaving may abort all processes with the exit code of that error.
/// Error{kUsage} if the launcher started several processes and this build has no MPI, or MPI does
/// not see them.
std::shared_ptr<runtime::ProcessGroup> join_mpi();

}  // namespace sluice::comm
