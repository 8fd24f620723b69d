#include "sluice/nn/remote.h"

#include "sluice/ir/provenance_scope.h"

namespace sluice::nn {
namespace {

const TensorSpec kIndex{{}, i32, {}};

ops::Group group_of(const VariableFactory& factory) { return factory.group(); }
ops::Group group_of(const Tensor&) { return {}; }

template <typename Tree>
NamedRemoteBuffers make_buffers(Ir ir, const Tree& tree, int64_t entries, int64_t threshold) {
  NamedRemoteBuffers buffers;
  tree.for_each([&](const std::string& key, const auto& leaf) {
    const TensorSpec spec =
        replica_sharded_spec(ir, leaf.spec(), {.threshold = threshold, .group = group_of(leaf)});
    buffers.merge(key, ir.remote_buffer(spec, entries));
  });
  return buffers;
}

}  // namespace

NamedRemoteBuffers named_variable_buffers(Ir ir, const NamedVariableFactories& factories,
                                          int64_t entries, int64_t sharded_threshold) {
  return make_buffers(ir, factories, entries, sharded_threshold);
}

NamedRemoteBuffers named_buffers(Ir ir, const NamedTensors& tensors, int64_t entries,
                                 int64_t sharded_threshold) {
  return make_buffers(ir, tensors, entries, sharded_threshold);
}

std::pair<GraphWithNamedArgs, std::vector<std::string>> load_remote_graph(
    Ir ir, const NamedRemoteBuffers& buffers, int64_t entries) {
  Graph& graph = ir.create_empty_graph("load_remote");
  const Tensor index = graph.input(kIndex, "load_index");
  const auto [keys, list] = buffers.unpack();
  for (size_t i = 0; i < keys.size(); ++i) {
    ir.grow(list[i], entries);
    graph.add_output(graph.remote_load(list[i], index, keys[i]));
  }
  return {GraphWithNamedArgs(graph), keys};
}

GraphWithNamedArgs store_remote_graph(Ir ir, const NamedRemoteBuffers& buffers, int64_t entries) {
  Graph& graph = ir.create_empty_graph("store_remote");
  const Tensor index = graph.input(kIndex, "store_index");
  NamedTensors args;
  const auto [keys, list] = buffers.unpack();
  for (size_t i = 0; i < keys.size(); ++i) {
    ir.grow(list[i], entries);
    args.merge(keys[i], graph.input(list[i].spec, keys[i]));
  }
  store_remote(graph, buffers, args, index);
  return GraphWithNamedArgs(graph, args);
}

NamedTensors load_remote(Graph& graph, const NamedRemoteBuffers& buffers,
                         const RemoteEntry& entry) {
  const auto [keys, list] = buffers.unpack();
  NamedTensors loaded;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Graph::ProvenanceScope of(graph, {.variable = keys[i]});
    loaded.merge(keys[i], graph.remote_load(list[i], entry, keys[i]));
  }
  return loaded;
}

void store_remote(Graph& graph, const NamedRemoteBuffers& buffers, const NamedTensors& tensors,
                  const RemoteEntry& entry) {
  const auto [keys, list] = buffers.unpack();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (const Tensor* const t = tensors.find_leaf(keys[i])) graph.remote_store(list[i], entry, *t);
  }
}

}  // namespace sluice::nn
