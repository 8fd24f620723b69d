#pragma once
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"
#include "sluice/ops/collectives.h"

/// Replicated tensor sharding: of a tensor that the replicas of a group have alike, each holds a
/// chunk. A shard is flat, and its meta_shape is the tensor's shape; chunks are ceil(n / replicas)
/// elements, the last padded with zeros.
namespace sluice::nn {

/// No tensor has so many elements: nothing is sharded.
inline constexpr int64_t kNeverShard = std::numeric_limits<int64_t>::max();

/// Which tensors are sharded, and over whom: those with at least `threshold` elements, over the
/// replicas of a group (default: all).
struct ShardRule {
  int64_t threshold = 1024;
  ops::Group group = {};
};

/// How many replicas share the tensor by the rule; 0 if it stays whole: a group of one, too few
/// elements, a scalar. Error{kUsage} for a negative threshold.
int shard_count(const Ir& ir, const TensorSpec& spec, const ShardRule& rule = {});
/// The spec of the shard, or `spec` itself if it stays whole or is a shard already.
TensorSpec replica_sharded_spec(const Ir& ir, const TensorSpec& spec, const ShardRule& rule = {});
TensorSpec replica_sharded_spec(const Tensor& t, const ShardRule& rule = {});

/// The whole tensor of a shard; any other as it is.
Tensor gather_replica_sharded_tensor(const Tensor& t, const ops::Group& group = {});
/// A graph "all_gather" with an input for each tensor under its key, and the keys: its outputs are
/// the whole tensors, in order of keys.
///
///     auto [gather, names] = nn::all_gather_replica_sharded_graph(ir, shards);
///     NamedTensors whole = NamedTensors::pack(names, gather.bind(shards).call(&main));
std::pair<GraphWithNamedArgs, std::vector<std::string>> all_gather_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, const ops::Group& group = {});

/// `t` combined over the group: the member's shard if the rule shards it, else whole.
Tensor reduce_replica_sharded_tensor(const Tensor& t, const std::string& op = "add",
                                     const ShardRule& rule = {});
/// What all replicas have of each tensor on average: whole the same for all, or the shards of those
/// with `sharded_threshold` elements.
NamedTensors mean_over_replicas(const NamedTensors& tensors,
                                int64_t sharded_threshold = kNeverShard);
/// Reductions as a graph "replica_reduce", as above.
std::pair<GraphWithNamedArgs, std::vector<std::string>> reduce_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, const std::string& op = "add", const ShardRule& rule = {});

}  // namespace sluice::nn
