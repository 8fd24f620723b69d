#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// A partition of the replicas into groups of equal size: group i starts at its first unassigned replica and takes
/// `size` replicas that are `stride` apart.
struct ReplicaGrouping {
  int replicas = 1;
  int stride = 1;
  int size = 1;

  int groups() const { return replicas / size; }
  /// Group of each replica, e.g. 8 replicas, stride 2, size 2: 0 1 0 1 2 3 2 3.
  std::vector<int> assignment() const;
  /// The grouping whose group i holds the i-th members of all groups of this one.
  ReplicaGrouping transpose() const;
  bool operator==(const ReplicaGrouping&) const = default;

  /// Checked: 0 < stride, stride · size divides `replicas`; Error{kUsage} otherwise. Stride is 1 when size is 1.
  static ReplicaGrouping make(int replicas, int stride, int size);
};

/// "ReplicaGrouping(num_replicas=4, stride=1, group_size=4, num_groups=1)".
std::string to_string(const ReplicaGrouping& grouping);

}  // namespace sluice
