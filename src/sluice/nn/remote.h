#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/rts.h"
#include "sluice/nn/variable_factory.h"

namespace sluice::nn {

/// Create a remote buffer of `entries` entries for each factory or each tensor. An entry has the
/// spec of the factory or tensor. With at least `sharded_threshold` elements, an entry is a shard
/// over the replicas of the factory's group, or over all replicas (nn/rts.h). Several entries hold
/// several layers of the same kind.
NamedRemoteBuffers named_variable_buffers(Ir ir, const NamedVariableFactories& factories,
                                          int64_t entries = 1,
                                          int64_t sharded_threshold = kNeverShard);
NamedRemoteBuffers named_buffers(Ir ir, const NamedTensors& tensors, int64_t entries = 1,
                                 int64_t sharded_threshold = kNeverShard);

/// Creates a graph "load_remote" whose input is an entry (`load_index`, i32) and whose outputs are
/// the tensors of that entry. Returns the graph and the keys, in the order of the outputs
/// (alphabetical). Enlarges the buffers to at least `entries` entries.
///
///     auto [load, names] = nn::load_remote_graph(ir, buffers, layers);
///     NamedTensors weights = NamedTensors::pack(names, load.call(&main, row));
std::pair<GraphWithNamedArgs, std::vector<std::string>> load_remote_graph(
    Ir ir, const NamedRemoteBuffers& buffers, int64_t entries = 1);
/// Creates a graph "store_remote" without outputs. Its inputs are an entry (`store_index`, i32) and
/// a tensor for each buffer in alphabetical order of keys; the tensors are its named arguments.
/// Enlarges the buffers to at least `entries` entries.
GraphWithNamedArgs store_remote_graph(Ir ir, const NamedRemoteBuffers& buffers,
                                      int64_t entries = 1);

/// Emits ops in `graph` that load entry `entry` of every buffer. Returns the tensors under the
/// buffers' keys.
NamedTensors load_remote(Graph& graph, const NamedRemoteBuffers& buffers,
                         const RemoteEntry& entry = 0);
/// Emits ops in `graph` that store each tensor to entry `entry` of the buffer with the same key.
/// Ignores keys that only `buffers` or only `tensors` has.
void store_remote(Graph& graph, const NamedRemoteBuffers& buffers, const NamedTensors& tensors,
                  const RemoteEntry& entry = 0);

}  // namespace sluice::nn
