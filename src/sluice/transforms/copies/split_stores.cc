#include "sluice/transforms/copies/split_stores.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <vector>

#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/copies/op_copies.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

class StoreSplitter {
 public:
  StoreSplitter(Ir ir, const std::set<int32_t>& streams) : ir_(std::move(ir)), streams_(streams) {}

  void copy_into(Graph& from, Graph& to) {
    OpCopies copies(from, to,
                    [&](TensorId t) { return GraphEditor(to).share_constant(from.handle(t)); });
    for (const TensorId t : from.input_ids()) {
      const TensorInfo& info = from.info(t);
      copies.set(t, to.input(info.spec, info.name, info.pass));
    }
    for (const Tensor& v : from.variables()) copies.set(v.id(), ir_.share_variable(v, to));
    for (const Op& op : from.ops()) {
      std::vector<GraphId> callees;
      for (const GraphId id : op.callees) callees.push_back(copy_of(id));
      copies.copy(op, std::move(callees));
    }
    for (const TensorId t : from.output_ids()) to.add_output(copies[t]);
  }

  // Streams without a store, by name.
  std::vector<std::string> missing() const {
    std::vector<std::string> names;
    for (const int32_t id : streams_) {
      if (!found_.contains(id)) names.push_back(ir_.stream(id).name);
    }
    return names;
  }

  // Removes the stores.
  void remove() {
    for (const GraphId id : graphs_) {
      Graph& graph = ir_.graph(id);
      std::unordered_set<OpId> stores;
      for (const Op& op : graph.ops()) {
        if (is_store(op)) stores.insert(op.id);
      }
      GraphEditor(graph).remove_ops(stores);
      verify_transformed(graph);
    }
  }

  // Finds the stores of a graph and of those that it calls.
  void find(GraphId id) {
    if (!graphs_.insert(id).second) return;
    for (const Op& op : ir_.graph(id).ops()) {
      for (const Effect& e : op.effects) {
        if (is_store(e)) found_.insert(e.id);
      }
      for (const GraphId callee : op.callees) find(callee);
    }
  }

 private:
  bool is_store(const Effect& e) const {
    return e.kind == Effect::Action::kStreamWrite && streams_.contains(e.id);
  }
  bool is_store(const Op& op) const {
    return std::any_of(op.effects.begin(), op.effects.end(),
                       [&](const Effect& e) { return is_store(e); });
  }

  GraphId copy_of(GraphId id) {
    const auto known = copies_.find(id);
    if (known != copies_.end()) return known->second;
    Graph& from = ir_.graph(id);
    Graph& to = ir_.create_empty_graph(base_name(from.name()));
    copy_into(from, to);
    copies_.emplace(id, to.id());
    return to.id();
  }

  Ir ir_;
  const std::set<int32_t>& streams_;
  std::set<GraphId> graphs_;  ///< The entry and the graphs that it calls.
  std::set<int32_t> found_;   ///< Streams with a store.
  std::map<GraphId, GraphId> copies_;
};

}  // namespace

Graph& split_stores(Ir ir, const std::string& entry, const std::string& copy,
                    const std::set<int32_t>& streams) {
  require(ir.entries().contains(entry), "split_stores: '{}' must be an entry graph of the Ir",
          entry);
  require(!ir.entries().contains(copy), "split_stores: entry graph '{}' exists already", copy);
  Graph& from = ir.entry_graph(entry);
  StoreSplitter splitter(ir, streams);
  splitter.find(from.id());
  require(splitter.missing().empty(),
          "split_stores: entry graph '{}' must store to each stream, got no store to {}", entry,
          fmt::join(splitter.missing(), ", "));
  Graph& to = ir.entry_graph(copy);
  splitter.copy_into(from, to);
  splitter.remove();
  verify_transformed(to);
  return to;
}

}  // namespace sluice::transforms
