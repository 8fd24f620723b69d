#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// One order in which the workers, queues and devices of a machine may run.
struct DryRunOptions {
  /// Seed of the data of variables and streams, and of memory before it is written.
  uint64_t seed = 1;
  bool late_transfers = false;  ///< Transfers on io queues run at their wait, not at their issue.
  /// True: until the next barrier, worker 0 runs after the other workers. False: before them.
  bool worker0_last = false;
  int64_t replica = 0;  ///< The replica that runs.
  int64_t most_steps = 200'000;
};

/// The visible results of a run: a hash of every stream entry written, variable and remote buffer.
struct DryRun {
  std::string fault;  ///< Reason why the run stopped; empty if it ended.
  std::map<std::string, uint64_t> seen;
  bool operator==(const DryRun&) const = default;
};

/// Runs a program on real bytes without real kernels: each task writes a hash of the bytes that it
/// reads. The run uses only addresses, tasks, barriers, transfers and messages, never the names of
/// values. It therefore shows how damage to a plan changes results, and shares nothing with the
/// checker. One replica runs: its output of a collective is a hash of its input, the group and the
/// sequence number. For plans of a few MiB.
DryRun dry_run(const exe::Executable& executable, const exe::Program& program,
               const DryRunOptions& options);

/// The dry runs of a right plan, for comparison with other plans.
class RightRuns {
 public:
  explicit RightRuns(const exe::Executable& right);

  /// Runs the programs of a plan in every order of DryRunOptions: as the first replica with one
  /// seed, and as the last replica with another. Returns the first difference from the right plan
  /// in words; empty if there is none.
  std::string difference(const exe::Executable& other) const;

 private:
  struct Run {
    std::string program;
    uint64_t seed;
    int64_t replica;
    DryRun seen;
  };
  std::vector<Run> runs_;
};

inline std::string difference(const exe::Executable& right, const exe::Executable& other) {
  return RightRuns(right).difference(other);
}

}  // namespace sluice::property
