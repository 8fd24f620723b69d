#include "random_graph.h"
#include "random_graph_ops.h"
#include "sluice/ops/ops.h"

namespace sluice::property {
namespace {

void add_operators(const Graph& g, std::set<GraphId>& visited, std::set<std::string>& names) {
  if (!visited.insert(g.id()).second) return;
  for (const Op& op : g.ops()) {
    names.insert(op.def->name);
    for (const GraphId id : op.callees) add_operators(g.ir().graph(id), visited, names);
  }
}

}  // namespace

Census& Census::operator+=(const Census& o) {
  ops += o.ops;
  calls += o.calls;
  by_reference += o.by_reference;
  repeats += o.repeats;
  rotations += o.rotations;
  conditionals += o.conditionals;
  gradients += o.gradients;
  updates += o.updates;
  streams += o.streams;
  remote += o.remote;
  random_ops += o.random_ops;
  entry_graphs += o.entry_graphs;
  return *this;
}

void count_ops(RandomProgram& program) {
  for (const GraphId id : program.ir.graph_ids()) {
    for (const Op& op : program.ir.graph(id).ops()) {
      ++program.census.ops;
      program.census.random_ops += op.def == &ops::dropout_def() ||
                                   op.def == &ops::random_normal_def() ||
                                   op.def == &ops::random_uniform_def();
    }
  }
  program.census.streams = program.ir.stream_count();
  program.census.entry_graphs = static_cast<int>(program.ir.entries().size());
}

std::set<std::string> operators_of(const Ir& ir) {
  std::set<GraphId> visited;
  std::set<std::string> names;
  for (const auto& [name, id] : ir.entries()) add_operators(ir.graph(id), visited, names);
  return names;
}

std::string text(const Ir& ir) {
  std::string result;
  for (const GraphId id : ir.graph_ids()) result += print_schedule(ir.graph(id)) + "\n";
  return result;
}

}  // namespace sluice::property
