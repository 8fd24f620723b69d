#pragma once
#include <optional>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// Replicas that run a collective together: groups of `size` replicas that are `stride` apart. The
/// options of every collective begin with these fields.
struct GroupOptions {
  int64_t stride = 1;
  int64_t size = 1;
  static auto fields(auto&& use) {
    return use(field("stride", &GroupOptions::stride, "Distance of the replicas of a group."),
               field("size", &GroupOptions::size, "Replicas of a group."));
  }
};

struct AllReduceOptions : GroupOptions {
  std::string op = "add";
  static auto fields(auto&& use) {
    return GroupOptions::fields([&](const auto&... base) {
      return use(base..., field("op", &AllReduceOptions::op, "How the operands are combined."));
    });
  }
};

struct ReduceScatterOptions : GroupOptions {
  std::string op = "add";
  bool sharded = false;
  static auto fields(auto&& use) {
    return GroupOptions::fields([&](const auto&... base) {
      return use(base..., field("op", &ReduceScatterOptions::op, "How the operands are combined."),
                 field("sharded", &ReduceScatterOptions::sharded,
                       "The result is a shard of the operand: it has a meta_shape."));
    });
  }
};

struct AllGatherOptions : GroupOptions {
  int64_t axis = 0;
  Shape shape{1};
  static auto fields(auto&& use) {
    return GroupOptions::fields([&](const auto&... base) {
      return use(base...,
                 field("axis", &AllGatherOptions::axis,
                       "Axis along which the operands of the members are concatenated."),
                 field("shape", &AllGatherOptions::shape, "Shape of the result."));
    });
  }
};

struct ReplicatedSliceOptions : GroupOptions {
  int64_t axis = 0;
  static auto fields(auto&& use) {
    return GroupOptions::fields([&](const auto&... base) {
      return use(base..., field("axis", &ReplicatedSliceOptions::axis, "Axis to cut."));
    });
  }
};

const OpDef& replicated_all_reduce_def();
const OpDef& replicated_all_reduce_in_place_def();
const OpDef& replicated_all_reduce_identical_inputs_def();
const OpDef& replicated_all_reduce_identical_grad_inputs_def();
const OpDef& replicated_reduce_scatter_def();
const OpDef& replicated_all_gather_def();
const OpDef& replicated_slice_def();

/// Returns the groups of a collective with options `attrs` in a program of `replicas` replicas.
/// Error{kUsage} unless the groups tile the replicas.
ReplicaGrouping collective_group(const Attrs& attrs, int replicas);

/// The group that a collective combines (default: all replicas); it must have one stride. All
/// replicas of a group run a collective together, in program order, so a branch of a conditional
/// must not contain one. Elements are combined in ascending order of the replicas. f16 and bf16 are
/// combined in float and rounded once. Calling a collective fixes the number of replicas.
using Group = std::optional<ReplicaGrouping>;

/// How a collective combines the operands of the members. kMin and kMax give NaN where an operand
/// is NaN.
enum class CollectiveOp : uint8_t {
  kAdd,
  kMean,  ///< The sum, divided once.
  kMul,
  kMin,
  kMax,
  kAnd,  ///< Bitwise, as kOr.
  kOr,
  kSquareAdd,  ///< The sum of squares.
  kLocal,      ///< The member's own operand; replicated_reduce_scatter only.
};
constexpr std::string_view words_of(CollectiveOp) {
  return "add,mean,mul,min,max,and,or,square_add,local";
}
/// Returns the word of an op in the options of a collective: "add", "square_add".
std::string_view word_of(CollectiveOp op);

/// Combines t over the group; every member gets the same result. Gradients do not pass.
/// Error{kUsage} for an op that does not support the dtype of t.
Tensor replicated_all_reduce(TensorArg t, CollectiveOp op = CollectiveOp::kAdd,
                             const Group& group = {});
/// replicated_all_reduce into t's storage.
Tensor replicated_all_reduce_(TensorArg t, CollectiveOp op = CollectiveOp::kAdd,
                              const Group& group = {});
/// Returns t, which must be equal on all members. The gradient of t is combined over the group.
Tensor replicated_all_reduce_identical_inputs(TensorArg t, CollectiveOp op = CollectiveOp::kAdd,
                                              const Group& group = {});
/// Combines t over the group. The gradient, which must be equal on all members, passes unchanged.
Tensor replicated_all_reduce_identical_grad_inputs(TensorArg t,
                                                   CollectiveOp op = CollectiveOp::kAdd,
                                                   const Group& group = {});

/// Whether a scattered tensor records, as its meta_shape, the shape of the tensor that it is a
/// shard of.
enum class Sharding : uint8_t { kPlain, kReplicated };

/// Combines t over the group and returns this member's chunk of the result. t, with n elements, is
/// flattened and cut into chunks of ceil(n / size) elements, padded with zeros after the end. Op
/// kLocal does not combine: the result is the chunk of the member's own t. With kReplicated, the
/// meta_shape of the result is the shape of t, or the meta_shape of t if t is a shard.
Tensor replicated_reduce_scatter(TensorArg t, CollectiveOp op = CollectiveOp::kAdd,
                                 const Group& group = {}, Sharding sharding = Sharding::kPlain);
/// Shards t over the group: returns this member's chunk of t. t must be equal on all members.
Tensor replica_sharded_slice(TensorArg t, const Group& group = {});

/// Arrangement of gathered operands. kAuto is kMetaShape for a shard, else kConcat.
enum class Gather : uint8_t { kAuto, kConcat, kNewAxis, kMetaShape };
constexpr std::string_view words_of(Gather) { return "auto,concat,new_axis,meta_shape"; }

/// Gathers the operands of all members, in ascending order. kConcat concatenates them along `axis`,
/// which may count from the end. kNewAxis stacks them along a new axis there. kMetaShape joins
/// shards to the whole tensor, whose shape is their meta_shape; `axis` must be 0.
Tensor replicated_all_gather(TensorArg t, int64_t axis = 0, const Group& group = {},
                             Gather arrangement = Gather::kAuto);

/// Cuts t along `axis` into equal parts, one per member of the group, and returns this member's
/// part. t must be equal on all members. The axis is dropped if a part has size 1 there. The
/// gradient is gathered. Error{kUsage} unless the size of the group divides the axis.
Tensor replicated_slice(TensorArg t, int64_t axis = 0, const Group& group = {});

}  // namespace sluice::ops
