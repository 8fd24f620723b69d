#pragma once
#include <string>
#include <vector>

namespace sluice {

/// A partition of the replicas into groups of equal size, numbered in the order of their first replicas. Most have one
/// stride: group i starts at its first unassigned replica and takes `size` replicas that are `stride` apart.
class ReplicaGrouping {
 public:
  /// One replica, a group of its own.
  ReplicaGrouping() : ReplicaGrouping({0}, 1) {}
  /// Checked: 0 < stride, stride · size divides `replicas`; Error{kUsage} otherwise. Stride is 1 when size is 1.
  static ReplicaGrouping make(int replicas, int stride, int size);
  /// From the group of each replica. Error{kUsage} unless all groups have one size and their numbers are 0, 1, … in the
  /// order of their first replicas.
  static ReplicaGrouping from_assignments(std::vector<int> groups);

  int replicas() const { return static_cast<int>(assignment_.size()); }
  int size() const { return size_; }
  int groups() const { return replicas() / size_; }
  /// Members of every group are equally far apart.
  bool is_constant() const { return stride_ > 0; }
  /// Error{kUsage} unless the grouping is constant.
  int stride() const;
  /// Group of each replica, e.g. 8 replicas, stride 2, size 2: 0 1 0 1 2 3 2 3.
  const std::vector<int>& assignment() const { return assignment_; }
  int group_of(int replica) const { return assignment_[static_cast<size_t>(replica)]; }
  /// How many replicas of its group come before it.
  int member_of(int replica) const;
  /// The replicas of a group, ascending.
  std::vector<int> members(int group) const;

  /// The grouping whose group i holds the i-th members of all groups of this one.
  ReplicaGrouping transpose() const;
  /// The coarsest constant grouping each group of which lies in one group of this one; itself if it is constant.
  ReplicaGrouping const_rg() const;
  /// Group of this one in which each group of const_rg() lies: whose value a device group takes.
  std::vector<int> to_device_map() const;
  /// First group of const_rg() in each group of this one: where the host finds its value.
  std::vector<int> to_host_map() const;
  bool operator==(const ReplicaGrouping& other) const { return assignment_ == other.assignment_; }

 private:
  ReplicaGrouping(std::vector<int> assignment, int size);

  std::vector<int> assignment_;
  int size_ = 1;
  int stride_ = 1;  ///< 0: none.
};

/// "ReplicaGrouping(num_replicas=4, stride=1, group_size=4, num_groups=1)", or, without a stride,
/// "ReplicaGrouping(assignment=[0, 1, 1, 0])".
std::string to_string(const ReplicaGrouping& grouping);

}  // namespace sluice
