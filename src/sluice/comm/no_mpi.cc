#include "sluice/comm/launcher.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"

namespace sluice::comm {

std::string mpi_version() { return "none"; }

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  require(launched_processes() == 1,
          "mpirun started {} processes but this build has no MPI; install libopenmpi-dev or "
          "libmpich-dev and build with -DSLUICE_WITH_MPI=ON",
          launched_processes());
  return nullptr;
}

}  // namespace sluice::comm
