#include "sluice/ir/replica_grouping.h"

#include "sluice/base/error.h"

namespace sluice {

ReplicaGrouping ReplicaGrouping::make(int replicas, int stride, int size) {
  require(size > 0 && size <= replicas, "replica grouping: size {} is not in [1, {}]", size,
          replicas);
  require(stride > 0 && stride <= replicas, "replica grouping: stride {} is not in [1, {}]", stride,
          replicas);
  if (size == 1) stride = 1;
  require(replicas % (stride * size) == 0,
          "replica grouping: stride {} x size {} does not tile {} replicas", stride, size,
          replicas);
  return {replicas, stride, size};
}

std::vector<int> ReplicaGrouping::assignment() const {
  std::vector<int> group(static_cast<size_t>(replicas));
  const int block = stride * size;
  for (int r = 0; r < replicas; ++r) {
    group[static_cast<size_t>(r)] = r / block * stride + r % stride;
  }
  return group;
}

ReplicaGrouping ReplicaGrouping::transpose() const {
  const int block = stride * size;
  if (size == 1) return make(replicas, 1, replicas);
  if (block == replicas) return make(replicas, 1, stride);
  require(stride == 1, "replica grouping: the transpose of {} has no single stride",
          to_string(*this));
  return make(replicas, size, replicas / size);
}

std::string to_string(const ReplicaGrouping& g) {
  return fmt::format("ReplicaGrouping(num_replicas={}, stride={}, group_size={}, num_groups={})",
                     g.replicas, g.stride, g.size, g.groups());
}

}  // namespace sluice
