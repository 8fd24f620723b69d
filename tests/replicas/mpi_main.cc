// Runs the tests of this program in every process that mpirun started.
#include <gtest/gtest.h>

#include "replicas_util.h"
#include "sluice/base/sys.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto& group = sluice::test::launched_group();
  group = sluice::comm::join_mpi();
  if (group == nullptr) {
    sluice::sys::write_stderr("to be started by mpirun, with two processes or more\n");
    return 1;
  }
  const bool failed = RUN_ALL_TESTS() != 0;
  const bool any_failed = sluice::runtime::Agreement(group).any(failed);
  group.reset();
  return any_failed ? 1 : 0;
}
