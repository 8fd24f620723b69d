#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/rts.h"
#include "sluice/nn/variable_factory.h"

namespace sluice::nn {

/// A remote buffer for each factory, or each tensor, of its spec or, from `sharded_threshold`
/// elements on, of its shard among the replicas of a factory's group (nn/rts.h). Entries beyond one
/// serve further layers of one kind.
NamedRemoteBuffers named_variable_buffers(Ir ir, const NamedVariableFactories& factories,
                                          int64_t entries = 1,
                                          int64_t sharded_threshold = kNeverShard);
NamedRemoteBuffers named_buffers(Ir ir, const NamedTensors& tensors, int64_t entries = 1,
                                 int64_t sharded_threshold = kNeverShard);

/// A graph "load_remote" from an entry (`load_index`, i32) to the tensors there, and their keys, in
/// order of keys. Buffers get at least `entries` entries.
///
///     auto [load, names] = nn::load_remote_graph(ir, buffers, layers);
///     NamedTensors weights = NamedTensors::pack(names, load.call(&main, row));
std::pair<GraphWithNamedArgs, std::vector<std::string>> load_remote_graph(
    Ir ir, const NamedRemoteBuffers& buffers, int64_t entries = 1);
/// A graph "store_remote" without outputs: an entry (`store_index`, i32), then a tensor for each
/// buffer in order of keys, which are its named arguments. Buffers get at least `entries` entries.
GraphWithNamedArgs store_remote_graph(Ir ir, const NamedRemoteBuffers& buffers,
                                      int64_t entries = 1);

/// The same as ops of `graph`: entry `entry` of every buffer, under the buffers' keys.
NamedTensors load_remote(Graph& graph, const NamedRemoteBuffers& buffers,
                         const RemoteEntry& entry = 0);
/// Stores the tensors whose keys both sides have.
void store_remote(Graph& graph, const NamedRemoteBuffers& buffers, const NamedTensors& tensors,
                  const RemoteEntry& entry = 0);

}  // namespace sluice::nn
