#include "sluice/comm/launcher.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"

namespace sluice::comm {

std::string mpi_version() { return "none"; }

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  const Launch launched = launch();
  require(launched.processes == 1,
          "the launcher started {} processes but this build has no MPI; install libopenmpi-dev or "
          "libmpich-dev and build with -DSLUICE_WITH_MPI=ON, or run each process by itself with "
          "--single-process ({})",
          launched.processes, launched.variable);
  return nullptr;
}

}  // namespace sluice::comm
