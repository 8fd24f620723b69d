#pragma once
#include <memory>
#include <string>

#include "sluice/runtime/process_group.h"

namespace sluice::comm {

/// The MPI that this build talks to, "Open MPI v4.1.4"; "none" if it has none.
std::string mpi_version();

/// The processes that mpirun started together with this one; null if there are no others. To be called once, on the main
/// thread. The last owner leaves the group: if a process has failed or is gone, that ends all of them, with the exit
/// code of what happened. Error{kUsage} if mpirun started several and this build has no MPI.
std::shared_ptr<runtime::ProcessGroup> join_mpi();

}  // namespace sluice::comm
