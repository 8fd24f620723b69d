#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "sluice/base/shape.h"
#include "sluice/ir/initializer.h"
#include "sluice/ir/replica_grouping.h"

namespace sluice {

enum class OpRole : uint8_t;

/// Location of the only copy of a variable: device memory, or an entry of a remote buffer.
struct VariableLocation {
  int32_t buffer = -1;  ///< Remote buffer; -1: device memory.
  int64_t entry = 0;
  bool remote() const { return buffer >= 0; }
};

/// Properties of a variable beyond its spec.
struct VariableInfo {
  /// Path in the model, without wrappers. It is the key of the first value, of checkpoints and of
  /// digests.
  std::string path = {};
  Initializer initializer = {};
  /// Groups of replicas that hold the same value; absent: one group of all replicas.
  std::optional<ReplicaGrouping> group = {};
  int shard = 0;  ///< Number of chunks of a shard (meta_shape is set); 0 for a whole variable.
  VariableLocation location = {};
  /// kUpdate: state of an optimizer. kRunningAverage and kAccumulation: what updates the variable.
  OpRole role = {};        ///< Initially kForward.
  std::string owner = {};  ///< Path of the variable that state or an accumulator belongs to.
};

/// Returns the spec of the array that the host sees of a variable whose tensor has `spec`. The
/// array is the whole logical tensor, also for a shard. If there are several groups, they are its
/// first axis.
TensorSpec host_spec(const TensorSpec& spec, const VariableInfo& info);

/// Elements [begin, begin + count) of the host's array, row-major.
struct HostPart {
  int64_t begin = 0;
  int64_t count = 0;
};

/// Returns the part of the host's array that a replica holds. The part is at the start of the
/// replica's tensor; a shard is padded with zeros after it. Consecutive members of a group hold
/// consecutive chunks.
HostPart host_part(const TensorSpec& spec, const VariableInfo& info, int replica);

}  // namespace sluice
