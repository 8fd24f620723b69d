#include "sluice/ir/replica_grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "sluice/base/error.h"

namespace sluice {
namespace {

std::vector<int> strided(int replicas, int stride, int size) {
  std::vector<int> group;
  const int block = stride * size;
  for (int r = 0; r < replicas; ++r) group.push_back(r / block * stride + r % stride);
  return group;
}

}  // namespace

ReplicaGrouping::ReplicaGrouping(std::vector<int> assignment, int size)
    : assignment_(std::move(assignment)), size_(size) {
  if (size_ == 1) return;
  const std::vector<int> first = members(0);
  const int stride = first[1] - first[0];
  const bool tiles = replicas() % (stride * size_) == 0;
  stride_ = tiles && assignment_ == strided(replicas(), stride, size_) ? stride : 0;
}

ReplicaGrouping ReplicaGrouping::make(int replicas, int stride, int size) {
  require(size > 0 && size <= replicas, "replica grouping: size {} is not in [1, {}]", size,
          replicas);
  require(stride > 0 && stride <= replicas, "replica grouping: stride {} is not in [1, {}]", stride,
          replicas);
  if (size == 1) stride = 1;
  require(replicas % (int64_t{stride} * size) == 0,
          "replica grouping: stride {} x size {} does not tile {} replicas", stride, size,
          replicas);
  return {strided(replicas, stride, size), size};
}

ReplicaGrouping ReplicaGrouping::from_assignments(std::vector<int> groups) {
  require(!groups.empty(),
          "replica grouping: the assignment must name at least one replica, got none");
  std::vector<int> size;
  for (size_t r = 0; r < groups.size(); ++r) {
    const int group = groups[r];
    const auto known = static_cast<int>(size.size());
    require(group >= 0 && group <= known,
            "replica grouping: the group of replica {} must be in [0, {}], got {}", r, known,
            group);
    if (group == known) size.push_back(0);
    ++at(size, group);
  }
  for (size_t g = 1; g < size.size(); ++g) {
    require(size[g] == size[0],
            "replica grouping: group {} must have {} replicas like group 0, got {}", g, size[0],
            size[g]);
  }
  return {std::move(groups), size[0]};
}

int ReplicaGrouping::stride() const {
  if (!is_constant()) fail(ErrorKind::kUsage, "{} has no single stride", to_string(*this));
  return stride_;
}

int ReplicaGrouping::member_of(int replica) const {
  const auto end = assignment_.begin() + replica;
  return static_cast<int>(std::count(assignment_.begin(), end, group_of(replica)));
}

std::vector<int> ReplicaGrouping::members(int group) const {
  std::vector<int> found;
  for (int r = 0; r < replicas(); ++r) {
    if (group_of(r) == group) found.push_back(r);
  }
  return found;
}

ReplicaGrouping ReplicaGrouping::transpose() const {
  std::vector<int> member;
  for (int r = 0; r < replicas(); ++r) member.push_back(member_of(r));
  return {std::move(member), groups()};
}

ReplicaGrouping ReplicaGrouping::const_rg() const {
  if (is_constant()) return *this;
  const auto refines = [&](const ReplicaGrouping& fine) {
    std::vector<int> whose(static_cast<size_t>(fine.groups()), -1);
    for (int r = 0; r < replicas(); ++r) {
      int& group = at(whose, fine.group_of(r));
      if (group >= 0 && group != group_of(r)) return false;
      group = group_of(r);
    }
    return true;
  };
  for (int size = size_; size > 1; --size) {
    for (int stride = 1; size_ % size == 0 && stride * size <= replicas(); ++stride) {
      if (replicas() % (stride * size) != 0) continue;
      ReplicaGrouping fine = make(replicas(), stride, size);
      if (refines(fine)) return fine;
    }
  }
  return make(replicas(), 1, 1);
}

std::vector<int> ReplicaGrouping::to_device_map() const {
  const ReplicaGrouping fine = const_rg();
  std::vector<int> map(static_cast<size_t>(fine.groups()));
  for (int r = 0; r < replicas(); ++r) at(map, fine.group_of(r)) = group_of(r);
  return map;
}

std::vector<int> ReplicaGrouping::to_host_map() const {
  const ReplicaGrouping fine = const_rg();
  std::vector<int> map(static_cast<size_t>(groups()));
  for (int r = replicas(); r-- > 0;) at(map, group_of(r)) = fine.group_of(r);
  return map;
}

std::string to_string(const ReplicaGrouping& g) {
  if (!g.is_constant()) {
    return fmt::format("ReplicaGrouping(assignment=[{}])", fmt::join(g.assignment(), ", "));
  }
  return fmt::format("ReplicaGrouping(num_replicas={}, stride={}, group_size={}, num_groups={})",
                     g.replicas(), g.stride(), g.size(), g.groups());
}

}  // namespace sluice
