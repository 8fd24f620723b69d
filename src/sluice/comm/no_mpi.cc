#include "sluice/comm/launcher.h"
#include "sluice/comm/mpi_group.h"

namespace sluice::comm {

std::string mpi_version() { return "none"; }

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  require(launched_processes() == 1,
          "mpirun started {} processes, and this build has no MPI; build with libopenmpi-dev or "
          "libmpich-dev installed and -DSLUICE_WITH_MPI=ON",
          launched_processes());
  return nullptr;
}

}  // namespace sluice::comm
