#include "sluice/nn/rts.h"

#include "sluice/base/checked.h"

namespace sluice::nn {
namespace {

// Creates a graph with an input for each tensor and the outputs f(input). Also returns the keys.
template <typename F>
std::pair<GraphWithNamedArgs, std::vector<std::string>> mapped(Ir ir, const std::string& name,
                                                               const NamedTensors& tensors,
                                                               const F& f) {
  Graph& graph = ir.create_empty_graph(name);
  NamedTensors args;
  const auto [keys, list] = tensors.unpack();
  for (size_t i = 0; i < keys.size(); ++i)
    args.merge(keys[i], graph.input(list[i].spec(), keys[i]));
  for (const std::string& key : keys) graph.add_output(f(args[key]));
  return {GraphWithNamedArgs(graph, args), keys};
}

}  // namespace

int shard_count(const Ir& ir, const TensorSpec& spec, const ShardRule& rule) {
  require(rule.threshold >= 0, "shards: threshold must be at least 0, got {}", rule.threshold);
  const int replicas = ir.fix_replication("replicated tensor sharding");
  const int size = rule.group ? rule.group->size() : replicas;
  const bool whole = size == 1 || spec.elements() < rule.threshold || spec.shape.rank() == 0;
  return whole ? 0 : size;
}

TensorSpec replica_sharded_spec(const Ir& ir, const TensorSpec& spec, const ShardRule& rule) {
  const int count = shard_count(ir, spec, rule);
  if (count == 0 || !spec.meta_shape.empty()) return spec;
  return {{ceil_div(spec.elements(), count)}, spec.dtype, spec.shape};
}

TensorSpec replica_sharded_spec(const Tensor& t, const ShardRule& rule) {
  return replica_sharded_spec(t.graph().ir(), t.spec(), rule);
}

Tensor gather_replica_sharded_tensor(const Tensor& t, const ops::Group& group) {
  return t.meta_shape().empty() ? t : ops::replicated_all_gather(t, 0, group);
}

std::pair<GraphWithNamedArgs, std::vector<std::string>> all_gather_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, const ops::Group& group) {
  return mapped(ir, "all_gather", tensors,
                [&](const Tensor& t) { return gather_replica_sharded_tensor(t, group); });
}

Tensor reduce_replica_sharded_tensor(const Tensor& t, ops::CollectiveOp op, const ShardRule& rule) {
  const int replicas = t.graph().ir().fix_replication("a collective");
  if ((rule.group ? rule.group->size() : replicas) == 1) return t;
  const bool sharded = shard_count(t.graph().ir(), t.spec(), rule) > 0;
  return sharded ? ops::replicated_reduce_scatter(t, op, rule.group, ops::Sharding::kReplicated)
                 : ops::replicated_all_reduce(t, op, rule.group);
}

NamedTensors mean_over_replicas(const NamedTensors& tensors, int64_t sharded_threshold) {
  NamedTensors means;
  tensors.for_each([&](const std::string& key, const Tensor& t) {
    means.merge(key, reduce_replica_sharded_tensor(t, ops::CollectiveOp::kMean,
                                                   {.threshold = sharded_threshold}));
  });
  return means;
}

std::pair<GraphWithNamedArgs, std::vector<std::string>> reduce_replica_sharded_graph(
    Ir ir, const NamedTensors& tensors, ops::CollectiveOp op, const ShardRule& rule) {
  return mapped(ir, "replica_reduce", tensors,
                [&](const Tensor& t) { return reduce_replica_sharded_tensor(t, op, rule); });
}

}  // namespace sluice::nn
