#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "sluice/base/shape.h"
#include "sluice/ir/initializer.h"
#include "sluice/ir/replica_grouping.h"

namespace sluice {

/// Where a variable's one copy lives: in device memory, or in an entry of a remote buffer.
struct Home {
  int32_t buffer = -1;  ///< Remote buffer; -1: device memory.
  int64_t entry = 0;
  bool remote() const { return buffer >= 0; }
};

/// What a variable is beyond its spec.
struct VariableInfo {
  std::string
      path;  ///< Wrapper-free path in the model: the key of its first value, of checkpoints and digests.
  Initializer initializer;
  std::optional<ReplicaGrouping> group;  ///< Replicas that hold the same value; all, if absent.
  int shard = 0;  ///< Chunk count of a shard (meta_shape is set), 0 if whole.
  Home home;
};

/// The array that the host sees of a variable whose tensor has `spec`: the whole logical tensor, also of a shard, with
/// the groups as first axis if there are several.
TensorSpec host_spec(const TensorSpec& spec, const VariableInfo& info);

/// Elements [begin, begin + count) of the host's array, row-major.
struct HostPart {
  int64_t begin = 0;
  int64_t count = 0;
};

/// What a replica holds of the host's array, from the start of its own; behind it a shard is padded with zeros.
/// Consecutive members of a group hold consecutive chunks.
HostPart host_part(const TensorSpec& spec, const VariableInfo& info, int replica);

}  // namespace sluice
