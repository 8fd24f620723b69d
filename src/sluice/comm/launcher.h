#pragma once
#include <string>

namespace sluice::comm {

/// The processes that a launcher such as mpirun or srun started together, as the environment names
/// them.
struct Launch {
  int processes = 1;  ///< 1 without a launcher.
  /// MPI must see as many. Otherwise the launcher may be one that does not start MPI's processes,
  /// and MPI must see more than one.
  bool is_exact = true;
  std::string variable;  ///< "SLURM_STEP_NUM_TASKS=4"; empty without a launcher.
};

/// Reads OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_SIZE, SLURM_STEP_NUM_TASKS and PMIX_RANK. The first
/// one that is set to a number counts; PMIX_RANK=R names at least R + 1 processes.
Launch launch();

}  // namespace sluice::comm
