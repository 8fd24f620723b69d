#include "sluice/transforms/autodiff.h"

#include <algorithm>
#include <set>

#include "sluice/ir/builtin.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/differentiate.h"
#include "sluice/transforms/loops/row_loop.h"
#include "sluice/transforms/recompute.h"

namespace sluice::transforms {
namespace {

bool is_output(const Graph& graph, TensorId t) {
  const auto& ids = graph.output_ids();
  return std::find(ids.begin(), ids.end(), t) != ids.end();
}

GradRequest::Gradient requested_gradient(const Graph& graph, TensorId t) {
  if (graph.info(t).kind == TensorKind::kInput && !is_output(graph, t))
    return {t, value_of_handle(graph, t)};
  return {t, is_output(graph, t) ? value_of_output(graph, t) : value_of_handle(graph, t)};
}

void check_tensor(const Graph& graph, const Tensor& t, std::string_view what) {
  require(t.valid(), "autodiff of graph {}: {} must be tensors of the graph, got an empty handle",
          graph.name(), what);
  require(graph.owns(t),
          "autodiff of graph {}: {} must be tensors of the graph, got '{}' of graph {}",
          graph.name(), what, t.name(), t.graph().name());
  require(is_float(t.dtype()),
          "autodiff of graph {}: {} must be floating-point tensors, got '{}', which is {}",
          graph.name(), what, t.name(), to_string(t.spec()));
}

GradRequest request_of(const Graph& graph, const AutodiffOptions& options, size_t shared_from) {
  require(
      !graph.is_entry(),
      "autodiff: the graph must not be an entry graph, got {}; differentiate a graph that it calls",
      graph.name());
  GradRequest request;
  request.shared_from = shared_from;
  request.missing = options.unreachable == Unreachable::kZeros ? GradRequest::Missing::kZeros
                                                               : GradRequest::Missing::kError;
  if (options.grads_provided) {
    for (const Tensor& t : *options.grads_provided) {
      check_tensor(graph, t, "grads_provided");
      request.provided.push_back(requested_gradient(graph, t.id()));
    }
  } else {
    for (const Tensor& t : graph.original_outputs()) {
      if (is_float(t.dtype())) request.provided.push_back(requested_gradient(graph, t.id()));
    }
  }
  if (options.grads_required) {
    for (const Tensor& t : *options.grads_required) {
      check_tensor(graph, t, "grads_required");
      request.required.push_back({t.id(), value_of_handle(graph, t.id())});
    }
  } else {
    for (const Tensor& t : graph.inputs()) {
      if (is_float(t.dtype())) request.required.push_back({t.id(), value_of_handle(graph, t.id())});
    }
  }
  require(!request.required.empty(),
          "autodiff of graph {}: grads_required must be at least one tensor, got none",
          graph.name());
  return request;
}

/// The gradients that callers need of a graph: indices of its outputs (provided) and inputs
/// (required).
struct Wanted {
  std::set<size_t> provided;
  std::set<size_t> required;
  std::set<size_t> stacks;  ///< Inputs of the body of a loop of which each iteration writes a row.
};

/// Differentiates each graph that `top` calls, directly or indirectly, once.
class Descent {
 public:
  Descent(Graph& top, const GradGraphs& given, Iterations iterations)
      : ir_(top.ir()), infos_(given), iterations_(iterations) {
    for (const auto& [id, info] : given) given_.insert(id);
    visit(top);
    order_.pop_back();
  }

  GradGraphInfo run(Graph& top, const GradRequest& request);

 private:
  // Orders callees before callers.
  void visit(const Graph& graph) {
    if (!seen_.insert(graph.id()).second) return;
    for (const Op& op : graph.ops()) {
      if (op.def == &builtin::loop()) {
        if (!has_static_trips(op)) continue;
        bodies_.insert(op.callees[0]);
      }
      for (const GraphId callee : op.callees) {
        if (!infos_.contains(callee)) visit(ir_.graph(callee));
      }
    }
    order_.push_back(graph.id());
  }
  void ask(const Graph& graph, const GradRequest& request, Dependence& dependence);
  void ask_body(const Graph& graph, const Op& loop, const ValueTable<char>& active,
                const ValueTable<char>& useful, Dependence& dependence);
  GradGraphs recomputing(const Graph& body);
  GradRequest request_of(const Graph& graph) const;

  Ir ir_;
  GradGraphs infos_;
  Iterations iterations_;
  GradGraphs recomputed_;     // By forward graph.
  std::set<GraphId> bodies_;  // Wrapper graphs of loops.
  std::set<GraphId> given_;
  std::set<GraphId> seen_;
  std::vector<GraphId> order_;
  std::map<GraphId, Wanted> wanted_;
};

// Records which gradients `graph` will need from the graphs that it calls.
void Descent::ask(const Graph& graph, const GradRequest& request, Dependence& dependence) {
  std::vector<Value> required;
  std::vector<Value> provided;
  for (const auto& p : request.required) required.push_back(p.value);
  for (const auto& p : request.provided) provided.push_back(p.value);
  const ValueTable<char> active = dependence.downstream(graph, required);
  const ValueTable<char> useful = dependence.upstream(graph, provided);
  for (const Op& op : graph.ops()) {
    if (op.def == &builtin::loop() && has_static_trips(op))
      ask_body(graph, op, active, useful, dependence);
    if (op.def != &builtin::call() && op.def != &builtin::branch()) continue;
    size_t first = op.def == &builtin::branch() ? 1 : 0;
    for (const GraphId id : op.callees) {
      const Graph& callee = ir_.graph(id);
      const GraphDependence& on = dependence.of(callee);
      Wanted& wanted = wanted_[id];
      for (size_t j = 0; j < on.outputs.size(); ++j) {
        if (!useful.at(value_made(graph, op, j))) continue;
        for (size_t i = 0; i < callee.input_ids().size(); ++i) {
          if (!on.outputs[j].contains(i) || !active.at(value_read(graph, op.inputs[first + i])))
            continue;
          if (is_detached(graph, op.inputs[first + i].tensor)) continue;
          wanted.provided.insert(j);
          wanted.required.insert(i);
        }
      }
      first += callee.input_ids().size();
    }
  }
}

void Descent::ask_body(const Graph& graph, const Op& loop, const ValueTable<char>& active,
                       const ValueTable<char>& useful, Dependence& dependence) {
  IndexSet needed;
  IndexSet provided;
  for (size_t i = 0; i < loop.inputs.size(); ++i) {
    const TensorId t = loop.inputs[i].tensor;
    if (is_float(graph.spec(t).dtype) && active.at(value_read(graph, loop.inputs[i])) &&
        !is_detached(graph, t))
      needed.insert(i);
  }
  for (size_t j = 0; j < loop.outputs.size(); ++j) {
    if (useful.at(value_made(graph, loop, j))) provided.insert(j);
  }
  const Graph& body = ir_.graph(loop.callees[0]);
  std::set<size_t> stacks;
  for (size_t k = 0; k < loop.inputs.size(); ++k) {
    const Operand& o = loop.inputs[k];
    const bool written = o.new_version.valid() && row_written(body, k + 2);
    if (written && useful.at({graph.info(o.tensor).storage, o.new_version})) {
      stacks.insert(k);
      provided.insert(k);
    }
  }
  const LoopPaths paths = dependence.loop_paths(graph, loop, needed, provided);
  const GraphDependence& on = dependence.of(body);
  Wanted& wanted = wanted_[body.id()];
  const auto require_inputs = [&](const IndexSet& set) {
    bool any = false;
    for (size_t i = 0; i < loop.inputs.size(); ++i) {
      // The first two inputs of the wrapper are not operands.
      if (!set.contains(i + 2) || !paths.active.contains(i) || row_written(body, i + 2)) continue;
      wanted.required.insert(i + 2);
      any = true;
    }
    return any;
  };
  for (size_t j = 0; j < on.outputs.size(); ++j) {
    if (paths.useful.contains(j) && require_inputs(on.outputs[j])) wanted.provided.insert(j);
  }
  for (const size_t k : stacks) {
    if (k + 2 < on.final_inputs.size() && require_inputs(on.final_inputs[k + 2]))
      wanted.stacks.insert(k + 2);
  }
}

// Returns the gradient graphs of the graphs that the body of a loop calls, made to run these graphs
// again.
GradGraphs Descent::recomputing(const Graph& body) {
  GradGraphs result = infos_;
  for (const Op& op : body.ops()) {
    if (op.def != &builtin::call()) continue;
    const auto found = infos_.find(op.callees[0]);
    if (found == infos_.end()) continue;
    auto made = recomputed_.find(op.callees[0]);
    if (made == recomputed_.end())
      made = recomputed_.emplace(op.callees[0], recompute_graph(found->second).info).first;
    result.insert_or_assign(op.callees[0], made->second);
  }
  return result;
}

GradRequest Descent::request_of(const Graph& graph) const {
  GradRequest request;
  request.keeps_inside = bodies_.contains(graph.id());
  request.missing = GradRequest::Missing::kOmit;
  const auto found = wanted_.find(graph.id());
  if (found == wanted_.end()) return request;
  std::set<TensorId> once;
  for (const size_t j : found->second.provided) {
    const TensorId t = graph.output_ids()[j];
    if (once.insert(t).second) request.provided.push_back({t, value_of_output(graph, t)});
  }
  for (const size_t k : found->second.stacks) {
    const RowUse use = *row_written(graph, k);
    const TensorId t = use.row.id();
    if (once.insert(t).second)
      request.provided.push_back({t, {graph.info(t).storage, use.version}});
  }
  for (const size_t i : found->second.required) {
    const auto use = request.keeps_inside ? row_read(graph, i) : std::nullopt;
    const TensorId t = use ? use->row.id() : graph.input_ids()[i];
    request.required.push_back({t, value_of_handle(graph, t)});
  }
  return request;
}

GradGraphInfo Descent::run(Graph& top, const GradRequest& request) {
  Dependence dependence;
  ask(top, request, dependence);
  for (size_t i = order_.size(); i-- > 0;) {
    const Graph& graph = ir_.graph(order_[i]);
    ask(graph, request_of(graph), dependence);
  }
  for (const GraphId id : order_) {
    Graph& graph = ir_.graph(id);
    const GradRequest wanted = request_of(graph);
    if (wanted.required.empty()) continue;
    const GraphEditor::Mark mark = GraphEditor(graph).mark();
    const bool again = wanted.keeps_inside && iterations_ == Iterations::kRecompute;
    GradGraphInfo info =
        differentiate(graph, wanted, again ? recomputing(graph) : infos_, given_, dependence);
    if (info.expected_outputs().empty()) {
      GraphEditor::roll_back(ir_, mark);
    } else {
      infos_.emplace(id, std::move(info));
    }
  }
  return differentiate(top, request, infos_, given_, dependence);
}

void check_given(const Graph& graph, const GradGraphs& given) {
  for (const auto& [id, info] : given) {
    require(id == info.forward_graph().id(),
            "autodiff of graph {}: called_graphs must map graph {} to its gradient graph, got that "
            "of {}",
            graph.name(), graph.ir().graph(id).name(), info.forward_graph().name());
  }
}

}  // namespace

GradGraphInfo autodiff_sharing(Graph& graph, const AutodiffOptions& options, size_t shared_from) {
  const GradRequest request = request_of(graph, options, shared_from);
  check_given(graph, options.called_graphs);
  const GraphEditor::Mark mark = GraphEditor(graph).mark();
  try {
    GradGraphInfo info =
        Descent(graph, options.called_graphs, options.iterations).run(graph, request);
    verify_transformed(graph);
    return info;
  } catch (...) {
    GraphEditor::roll_back(graph.ir(), mark);
    throw;
  }
}

GradGraphInfo autodiff(Graph& graph, const AutodiffOptions& options) {
  return autodiff_sharing(graph, options, SIZE_MAX);
}

ValueAndGrad value_and_grad(Graph& graph, const Tensors& inputs, std::source_location where) {
  const Tensors outputs = graph.original_outputs();
  const bool is_loss =
      outputs.size() == 1 && outputs[0].elements() == 1 && is_float(outputs[0].dtype());
  require(is_loss,
          "value_and_grad: graph {} must have one floating-point output of one element, got {}",
          graph.name(),
          outputs.size() == 1 ? to_string(outputs[0].spec())
                              : fmt::format("{} outputs", outputs.size()));
  require(!inputs.empty(), "value_and_grad: requires at least one input, got none");
  Graph& parent = inputs[0].graph();
  const TensorSpec loss = outputs[0].spec();
  const GradGraphInfo info = autodiff(graph, {.unreachable = Unreachable::kZeros});
  const CallSiteInfo call = ops::call_with_info(parent, graph, inputs, {}, where);
  const Tensor one = parent.constant(HostTensor::of<double>(loss.shape, f64, {1}).cast(loss.dtype),
                                     "Gradient___one");
  const Tensors grads = ops::call(parent, info.graph(), {one}, info.inputs_dict(call), where);
  ValueAndGrad result{.value = call.output(0)};
  size_t next = 0;
  for (const Tensor& t : inputs)
    result.grads.push_back(is_float(t.dtype()) ? grads[next++] : Tensor());
  return result;
}

}  // namespace sluice::transforms
