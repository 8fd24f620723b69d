#include "sluice/transforms/dependence.h"

#include "sluice/ir/builtin.h"

namespace sluice::transforms {

std::vector<Edge> Dependence::edges(const Graph& graph, const Op& op) {
  std::vector<Edge> result;
  std::vector<bool> passes(op.inputs.size());
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const TensorId t = op.inputs[i].tensor;
    passes[i] = is_float(graph.spec(t).dtype) && !is_detached(graph, t);
  }
  const auto add = [&](size_t input, const Value& made) {
    if (passes[input]) result.push_back({input, made});
  };
  const auto add_callee = [&](const GraphDependence& callee, size_t first, size_t count) {
    for (size_t j = 0; j < callee.outputs.size() && j < op.outputs.size(); ++j) {
      for (size_t i = 0; i < count; ++i) {
        if (callee.outputs[j].contains(i)) add(first + i, value_made(graph, op, j));
      }
    }
  };
  const auto written = [&](size_t i) {
    return Value{graph.info(op.inputs[i].tensor).storage, op.inputs[i].new_version};
  };
  const Ir ir = graph.ir();
  if (op.def == &builtin::call()) {
    const GraphDependence& callee = of(ir.graph(op.callees[0]));
    add_callee(callee, 0, op.inputs.size());
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (!op.inputs[k].new_version.valid()) continue;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (callee.final_inputs[k].contains(i)) add(i, written(k));
      }
    }
  } else if (op.def == &builtin::branch()) {
    const size_t then_inputs = builtin::then_inputs(op);
    add_callee(of(ir.graph(op.callees[0])), 1, then_inputs);
    add_callee(of(ir.graph(op.callees[1])), 1 + then_inputs, op.inputs.size() - 1 - then_inputs);
  } else if (op.def == &builtin::loop()) {
    const auto trips = from_attrs<builtin::LoopOptions>(op.attrs).trips;
    const std::vector<IndexSet> step = iteration(graph, op);
    std::vector<IndexSet> on(step);
    if (trips == 0) {
      for (size_t i = 0; i < on.size(); ++i) (on[i] = {}).insert(i);
    }
    bool grows = trips > 1;
    for (int64_t t = 1; t < trips && grows; ++t) {
      grows = false;
      for (IndexSet& set : on) {
        const IndexSet before = set;
        for (size_t i = 0; i < step.size(); ++i) {
          if (before.contains(i)) set.insert(step[i]);
        }
        grows |= set != before;
      }
    }
    for (size_t k = 0; k < on.size(); ++k) {
      for (size_t i = 0; i < on.size(); ++i) {
        if (!on[k].contains(i)) continue;
        if (k < op.outputs.size()) add(i, value_made(graph, op, k));
        if (op.inputs[k].new_version.valid()) add(i, written(k));
      }
    }
  } else {
    for (size_t j = 0; j < op.outputs.size(); ++j) {
      const Value made = value_made(graph, op, j);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        // A view that shares storage is the same value as its operand.
        if (value_read(graph, op.inputs[i]) == made) continue;
        if (!op.def->zero_gradient(static_cast<int>(i))) add(i, made);
      }
    }
  }
  return result;
}

std::vector<IndexSet> Dependence::iteration(const Graph& graph, const Op& loop) {
  const GraphDependence& on = of(graph.ir().graph(loop.callees[0]));
  std::vector<IndexSet> result(loop.inputs.size());
  for (size_t k = 0; k < result.size(); ++k) {
    // The first two inputs of the wrapper are not operands. It may have got further inputs.
    const bool known = k + 2 < on.final_inputs.size();
    const IndexSet* const set = k < on.outputs.size() ? &on.outputs[k]
                                : known               ? &on.final_inputs[k + 2]
                                                      : nullptr;
    for (size_t i = 0; set != nullptr && i < result.size(); ++i) {
      if (set->contains(i + 2)) result[k].insert(i);
    }
  }
  return result;
}

LoopPaths Dependence::loop_paths(const Graph& graph, const Op& loop, IndexSet needed,
                                 IndexSet provided) {
  const auto trips = from_attrs<builtin::LoopOptions>(loop.attrs).trips;
  const std::vector<IndexSet> step = iteration(graph, loop);
  LoopPaths paths{std::move(needed), std::move(provided)};
  bool grows = true;
  for (int64_t t = 1; t < trips && grows; ++t) {
    const LoopPaths before = paths;
    for (size_t k = 0; k < step.size(); ++k) {
      if (step[k].meets(before.active)) paths.active.insert(k);
      if (before.useful.contains(k)) paths.useful.insert(step[k]);
    }
    grows = paths.active != before.active || paths.useful != before.useful;
  }
  return paths;
}

const GraphDependence& Dependence::of(const Graph& graph) {
  const auto found = known_.find(graph.id());
  if (found != known_.end()) return found->second;
  ValueTable<IndexSet> on(graph);
  for (size_t i = 0; i < graph.input_ids().size(); ++i) {
    const TensorId t = graph.input_ids()[i];
    if (is_float(graph.spec(t).dtype)) on[{graph.info(t).storage, Version(0)}].insert(i);
  }
  for (const Op& op : graph.ops()) {
    for (const Edge& e : edges(graph, op)) {
      const IndexSet from = on.at(value_read(graph, op.inputs[e.input]));
      on[e.made].insert(from);
    }
  }
  GraphDependence result;
  for (const TensorId t : graph.output_ids()) {
    const bool none = !is_float(graph.spec(t).dtype) || is_detached(graph, t);
    result.outputs.push_back(none ? IndexSet{} : on.at(value_of_output(graph, t)));
  }
  for (const TensorId t : graph.input_ids())
    result.final_inputs.push_back(on.at(value_of_output(graph, t)));
  return known_.emplace(graph.id(), std::move(result)).first->second;
}

ValueTable<char> Dependence::downstream(const Graph& graph, const std::vector<Value>& from) {
  ValueTable<char> reached(graph);
  for (const Value& v : from) reached[v] = 1;
  for (const Op& op : graph.ops()) {
    for (const Edge& e : edges(graph, op)) {
      if (reached.at(value_read(graph, op.inputs[e.input]))) reached[e.made] = 1;
    }
  }
  return reached;
}

ValueTable<char> Dependence::upstream(const Graph& graph, const std::vector<Value>& of) {
  ValueTable<char> reached(graph);
  for (const Value& v : of) reached[v] = 1;
  for (size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.ops()[i];
    for (const Edge& e : edges(graph, op)) {
      if (reached.at(e.made)) reached[value_read(graph, op.inputs[e.input])] = 1;
    }
  }
  return reached;
}

}  // namespace sluice::transforms
