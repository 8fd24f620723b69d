// Compares the all-reduce of replicas in processes with plain MPI_Allreduce: mpirun -n 2 mpi_reduce
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/figure.h"
#include "sluice/base/sys.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"
#include "sluice/sluice.h"

namespace sluice::bench {
namespace {

constexpr int kRounds = 15;

// Returns the seconds of the slowest process. All processes begin together.
template <typename F>
double seconds_of(F&& f) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  f();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

void compare(const std::shared_ptr<runtime::ProcessGroup>& group, int64_t bytes) {
  Ir ir(group->size());
  const Tensor gradient = ir.main_graph().variable(
      f32_spec({bytes / 4}), Initializer::uniform(-1, 1).keyed({5, 6}), "gradient");
  ops::replicated_all_reduce_(gradient, ops::CollectiveOp::kMean);
  Session session(ir, {.device = cpu_device({.threads = 1}), .group = group});
  Binding binding = session.bind({}, {});
  std::vector<float> plain(static_cast<size_t>(bytes / 4), 1e-3f);
  std::vector<double> ours, theirs;
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(seconds_of([&] { session.run_into(binding); }));
    theirs.push_back(seconds_of([&] {
      MPI_Allreduce(MPI_IN_PLACE, plain.data(), static_cast<int>(plain.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }));
  }
  if (group->rank() != 0) return;
  const double a = median(ours) * 1e3, b = median(theirs) * 1e3;
  fmt::print("{:>4} MiB  {:>8.2f} ms  MPI_Allreduce {:>8.2f} ms  {:.2f}\n", bytes >> 20, a, b,
             b / a);
}

int run() {
  const auto group = comm::join_mpi();
  require(group != nullptr,
          "mpi_reduce: must run in at least two processes; start it with mpirun -n 2");
  if (group->rank() == 0)
    fmt::print("{} processes, {}; the last column is MPI's time by ours\n", group->size(),
               comm::mpi_version());
  for (const int64_t mib : {1, 16, 64}) compare(group, mib << 20);
  return 0;
}

}  // namespace
}  // namespace sluice::bench

int main() {
  try {
    return sluice::bench::run();
  } catch (const sluice::Error& e) {
    sluice::sys::print_stderr("error ({}): {}\n", sluice::to_string(e.kind()), e.what());
    return e.exit_code();
  }
}
