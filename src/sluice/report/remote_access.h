#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// Largest number of rows of remote_accesses().
inline constexpr size_t kMaxAccesses = 20000;

/// The loads or stores of one entry of a remote buffer by one step.
struct RemoteAccess {
  exe::BufferId buffer{0};
  int64_t entry = -1;  ///< -1: the step reads the number from device memory.
  exe::FunctionId function{0};
  int32_t step = 0;
  int64_t iteration =
      0;  ///< First iteration, of the innermost loop around the step, that accesses the entry.
  int64_t trips = 1;  ///< Iterations of that loop; 1: the step is not in a loop.
  int64_t count = 0;  ///< Times in one run.
};

/// Accesses of replica 0 in one run of a program, by device and in the order of their first time.
struct RemoteAccesses {
  std::vector<RemoteAccess> rows;
  bool complete = true;  ///< False if accesses are left out, because the program has too many.
};

/// Follows the calls of a program to its remote loads and stores, with the indices of its loops.
/// Both arms of a branch count.
RemoteAccesses remote_accesses(const exe::Executable& executable, const exe::Program& program);

}  // namespace sluice::report
