#pragma once
#include <string>
#include <vector>

#include "sluice/base/ids/ids.h"

namespace sluice {

/// A partition of the replicas into groups of equal size, numbered in the order of their first
/// replicas. Most groupings have one stride: each group starts at the first replica without a group
/// and has `size` replicas that are `stride` apart.
class ReplicaGrouping {
 public:
  /// One group of one replica.
  ReplicaGrouping() : ReplicaGrouping({0}, 1) {}
  /// Returns the grouping of `replicas` replicas with one stride; the stride is 1 if size is 1.
  /// Error{kUsage} unless stride and size are positive and stride · size divides `replicas`.
  static ReplicaGrouping make(int replicas, int stride, int size);
  /// Returns the grouping in which groups[r] is the group of replica r. Error{kUsage} unless all
  /// groups have one size and are numbered 0, 1, … in the order of their first replicas.
  static ReplicaGrouping from_assignments(std::vector<int> groups);

  int replicas() const { return static_cast<int>(assignment_.size()); }
  int size() const { return size_; }
  int groups() const { return replicas() / size_; }
  /// Whether the grouping has one stride.
  bool is_constant() const { return stride_ > 0; }
  /// Returns the stride. Error{kUsage} unless the grouping is constant.
  int stride() const;
  /// Group of each replica, e.g. 8 replicas, stride 2, size 2: 0 1 0 1 2 3 2 3.
  const std::vector<int>& assignment() const { return assignment_; }
  int group_of(int replica) const { return at(assignment_, replica); }
  /// Returns the position of a replica in its group, from 0.
  int member_of(int replica) const;
  /// The replicas of a group, ascending.
  std::vector<int> members(int group) const;

  /// Returns the grouping whose group i holds the i-th members of all groups of this one.
  ReplicaGrouping transpose() const;
  /// Returns the coarsest constant grouping whose groups are each contained in one group of this
  /// grouping. A constant grouping returns itself.
  ReplicaGrouping const_rg() const;
  /// Returns, for each group of const_rg(), the group of this grouping that contains it. A device
  /// group receives the value of that group.
  std::vector<int> to_device_map() const;
  /// Returns, for each group of this grouping, the first group of const_rg() that it contains. The
  /// host reads the value of the group there.
  std::vector<int> to_host_map() const;
  bool operator==(const ReplicaGrouping& other) const { return assignment_ == other.assignment_; }

 private:
  ReplicaGrouping(std::vector<int> assignment, int size);

  std::vector<int> assignment_;
  int size_ = 1;
  int stride_ = 1;  ///< 0 if the grouping has no single stride.
};

/// Returns "ReplicaGrouping(num_replicas=4, stride=1, group_size=4, num_groups=1)", or, without a
/// single stride, "ReplicaGrouping(assignment=[0, 1, 1, 0])".
std::string to_string(const ReplicaGrouping& grouping);

}  // namespace sluice
