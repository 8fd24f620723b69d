#pragma once
#include <optional>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// Which replicas run a collective together: groups of `size` that are `stride` apart. Every
/// collective's options begin with it.
struct GroupOptions {
  int64_t stride = 1;
  int64_t size = 1;
  static constexpr auto fields =
      std::tuple{field("stride", &GroupOptions::stride), field("size", &GroupOptions::size)};
};

struct AllReduceOptions : GroupOptions {
  std::string op = "add";
  static constexpr auto fields =
      std::tuple_cat(GroupOptions::fields, std::tuple{field("op", &AllReduceOptions::op)});
};

struct ReduceScatterOptions : GroupOptions {
  std::string op = "add";
  bool sharded = false;  ///< The result is a shard of the operand: it has a meta_shape.
  static constexpr auto fields = std::tuple_cat(
      GroupOptions::fields, std::tuple{field("op", &ReduceScatterOptions::op),
                                       field("sharded", &ReduceScatterOptions::sharded)});
};

struct AllGatherOptions : GroupOptions {
  int64_t axis = 0;  ///< The members' operands lie behind one another along it.
  Shape shape{1};    ///< Of the result.
  static constexpr auto fields = std::tuple_cat(
      GroupOptions::fields,
      std::tuple{field("axis", &AllGatherOptions::axis), field("shape", &AllGatherOptions::shape)});
};

struct ReplicatedSliceOptions : GroupOptions {
  int64_t axis = 0;
  static constexpr auto fields = std::tuple_cat(
      GroupOptions::fields, std::tuple{field("axis", &ReplicatedSliceOptions::axis)});
};

const OpDef& replicated_all_reduce_def();
const OpDef& replicated_all_reduce_in_place_def();
const OpDef& replicated_all_reduce_identical_inputs_def();
const OpDef& replicated_all_reduce_identical_grad_inputs_def();
const OpDef& replicated_reduce_scatter_def();
const OpDef& replicated_all_gather_def();
const OpDef& replicated_slice_def();

/// The groups of a collective with these options among so many replicas. Error{kUsage} unless they
/// tile them.
ReplicaGrouping collective_group(const Attrs& attrs, int replicas);

/// All replicas run a collective of a group together, in program order; so none may stand in a
/// branch of a conditional. Groups (default: all replicas) need one stride. Everything is combined
/// in ascending order of the replicas, element by element, in float for f16 and bf16, which are
/// rounded once. Fixes the number of replicas.
using Group = std::optional<ReplicaGrouping>;

/// t combined over the group, the same for every member: "add", "mean" (one division of the sum),
/// "mul", "min", "max" (NaN where one is), "and", "or" (bitwise), "square_add" (of squares). No
/// gradient goes through.
Tensor replicated_all_reduce(TensorArg t, const std::string& op = "add", const Group& group = {});
/// The same, into t's storage.
Tensor replicated_all_reduce_(TensorArg t, const std::string& op = "add", const Group& group = {});
/// t, which all members have alike; its gradient is combined over the group.
Tensor replicated_all_reduce_identical_inputs(TensorArg t, const std::string& op = "add",
                                              const Group& group = {});
/// t combined over the group; the gradient, which all members have alike, goes through as it is.
Tensor replicated_all_reduce_identical_grad_inputs(TensorArg t, const std::string& op = "add",
                                                   const Group& group = {});

/// Whether a scattered tensor knows of which tensor it is a shard.
enum class Sharding : uint8_t { kPlain, kReplicated };

/// This member's chunk of t combined over the group: t flat, cut in chunks of ceil(n / size)
/// elements, zeros behind the end. Op "local" combines nothing: the chunk of the member's own t.
/// kReplicated: the result's meta_shape is t's shape (t's meta_shape, if t is a shard itself).
Tensor replicated_reduce_scatter(TensorArg t, const std::string& op = "add",
                                 const Group& group = {}, Sharding sharding = Sharding::kPlain);
/// The chunk of t that the member holds of a tensor sharded over the group; all have t alike.
Tensor replica_sharded_slice(TensorArg t, const Group& group = {});

/// How gathered operands are arranged. kAuto: kMetaShape for a shard, else kConcat.
enum class Gather : uint8_t { kAuto, kConcat, kNewAxis, kMetaShape };

/// The members' operands, ascending: along `axis` (which may count from the end), behind one
/// another or along a new axis there, or, of a shard, the tensor with its meta_shape (axis 0).
Tensor replicated_all_gather(TensorArg t, int64_t axis = 0, const Group& group = {},
                             Gather arrangement = Gather::kAuto);

/// The member's part of t, which all have alike, cut along `axis` in as many equal parts as the
/// group has members; without that axis if a part has size 1 there. The gradient is gathered.
/// Error{kUsage} unless the axis can be cut so.
Tensor replicated_slice(TensorArg t, int64_t axis = 0, const Group& group = {});

}  // namespace sluice::ops
