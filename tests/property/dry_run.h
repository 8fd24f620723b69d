#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// One way in which the workers, queues and devices of a machine may take turns.
struct DryRunOptions {
  uint64_t seed =
      1;  ///< Data of variables and streams, and what memory holds before it is written.
  bool late_transfers = false;  ///< Transfers on io queues run when waited for, not when issued.
  bool worker0_last =
      false;  ///< Worker 0 falls behind the others up to the next barrier, or they behind it.
  int64_t replica = 0;  ///< The one that is run.
  int64_t most_steps = 200'000;
};

/// What can be seen of a run: a hash for every stream entry written, variable and remote buffer.
struct DryRun {
  std::string fault;  ///< Why it could not go on; empty if it ended.
  std::map<std::string, uint64_t> seen;
  bool operator==(const DryRun&) const = default;
};

/// Runs a program on real bytes, without real kernels: each task writes a hash of the bytes that it
/// reads. It looks at addresses, tasks, barriers, transfers and messages only, never at the names
/// of values, so it shows what a damaged plan does to results without anything in common with the
/// checker. One replica is run; what it gets of a collective is a hash of what it brings, of the
/// group and the sequence. For plans of a few MiB.
DryRun dry_run(const exe::Executable& executable, const exe::Program& program,
               const DryRunOptions& options);

/// The dry runs of a right plan, to compare others with.
class RightRuns {
 public:
  explicit RightRuns(const exe::Executable& right);

  /// Runs the programs of a plan in every way above, as the first replica with one seed, as the last with another; what
  /// differs from the right plan, or between the ways, in words; empty if nothing.
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
