#pragma once
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"
#include "sluice/ops/collectives.h"

/// Replicated tensor sharding. A tensor that is equal on all replicas of a group is cut into
/// chunks, and each replica holds one chunk, its shard. A shard has one axis, and its meta_shape is
/// the shape of the whole tensor. A chunk has ceil(n / replicas) elements; the last is padded with
/// zeros.
namespace sluice::nn {

/// A threshold above the size of any tensor: nothing is sharded.
inline constexpr int64_t kNeverShard = std::numeric_limits<int64_t>::max();

/// Selects the tensors to shard: those with at least `threshold` elements. They are sharded over
/// the replicas of `group` (default: all replicas).
struct ShardRule {
  int64_t threshold = 1024;
  ops::Group group = {};
};

/// Returns the number of replicas that share the tensor by the rule. Returns 0 if the tensor stays
/// whole: the group has one replica, or the tensor is a scalar or has too few elements.
/// Error{kUsage} for a negative threshold.
int shard_count(const Ir& ir, const TensorSpec& spec, const ShardRule& rule = {});
/// Returns the spec of the shard, or `spec` itself if the tensor stays whole or is already a shard.
TensorSpec replica_sharded_spec(const Ir& ir, const TensorSpec& spec, const ShardRule& rule = {});
TensorSpec replica_sharded_spec(const Tensor& t, const ShardRule& rule = {});

/// Gathers the whole tensor from the shards of the group. Returns any other tensor unchanged.
Tensor gather_replica_sharded_tensor(const Tensor& t, const ops::Group& group = {});
/// Creates a graph "all_gather" with an input for each tensor under its key. Its outputs are the
/// whole tensors. Returns the graph and the keys, in the order of the outputs (alphabetical).
///
///     auto [gather, names] = nn::all_gather_replica_sharded_graph(ir, shards);
///     NamedTensors whole = NamedTensors::pack(names, gather.bind(shards).call(&main));
std::pair<GraphWithNamedArgs, std::vector<std::string>> all_gather_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, const ops::Group& group = {});

/// Combines `t` over the replicas of the group with `op`. Returns the replica's shard of the result
/// if the rule shards it, otherwise the whole result.
Tensor reduce_replica_sharded_tensor(const Tensor& t,
                                     ops::CollectiveOp op = ops::CollectiveOp::kAdd,
                                     const ShardRule& rule = {});
/// Returns the mean over all replicas of each tensor. Means of tensors with at least
/// `sharded_threshold` elements are shards; other means are whole and equal on all replicas.
NamedTensors mean_over_replicas(const NamedTensors& tensors,
                                int64_t sharded_threshold = kNeverShard);
/// Creates a graph "replica_reduce" that applies reduce_replica_sharded_tensor() to each tensor.
/// Inputs, outputs and keys are as for all_gather_replica_sharded_graph().
std::pair<GraphWithNamedArgs, std::vector<std::string>> reduce_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, ops::CollectiveOp op = ops::CollectiveOp::kAdd,
    const ShardRule& rule = {});

}  // namespace sluice::nn
