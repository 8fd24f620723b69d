#pragma once
#include <cstddef>
#include <vector>

#include "sluice/base/ids/ids.h"

namespace sluice::exe {

/// Replicas [first, first + count) of a program.
struct ReplicaRange {
  int first = 0;
  int count = 1;
  bool contains(int replica) const { return replica >= first && replica < first + count; }
};

/// The process that runs each device of each replica. A replica may be divided over several
/// processes. In each process, the replicas that it runs are consecutive, and so are those whose
/// device d it runs.
class ProcessMap {
 public:
  /// `listed` has the process of each device: first those of replica 0, then those of replica 1,
  /// and so on. If it is empty, this list is divided into `processes` equal parts. Error{kUsage} if
  /// that is impossible, if a process has nothing to run, or if processes run different numbers of
  /// replicas.
  ProcessMap(int replicas, int devices, int processes, std::vector<int> listed = {});

  /// Returns a list in which process 0 runs the first devices of all replicas. Error{kUsage} if
  /// `processes` cannot share the devices evenly.
  static std::vector<int> devices_first(int replicas, int devices, int processes);

  int process_of(int replica, int device) const { return at(listed_, replica * devices_ + device); }
  /// Returns the replicas of which a process runs at least one device.
  ReplicaRange replicas_of(int process) const { return at(replicas_of_, process); }
  /// Returns the number of these replicas, which is equal for all processes.
  int replicas_each() const { return replicas_of_.front().count; }

 private:
  int devices_;
  std::vector<int> listed_;
  std::vector<ReplicaRange> replicas_of_;  ///< Indexed by process.
};

}  // namespace sluice::exe
