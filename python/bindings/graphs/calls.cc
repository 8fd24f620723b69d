#include "sluice/ir/call.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/ir/builtin.h"
#include "sluice/transforms/loops/loops.h"

/// Calls, loops and conditionals: graphs in graphs, and loops from Python functions.
namespace sluice::python {
namespace {

/// Returns the positional arguments of a call. A value of the host becomes a constant of the dtype
/// of its input.
Tensors arguments_of(const char* what, Graph& parent, const Graph& graph, const nb::list& given) {
  const auto& ids = graph.input_ids();
  require(given.size() <= ids.size(), "{}: {} inputs given, graph {} has {}", what, given.size(),
          graph.name(), ids.size());
  Tensors inputs;
  for (const nb::handle value : given) {
    const Tensor* tensor = nullptr;
    if (nb::try_cast(value, tensor, /*convert=*/false)) {
      inputs.push_back(*tensor);
    } else {
      const TensorInfo& input = graph.info(ids[inputs.size()]);
      inputs.push_back(parent.constant(
          host_value(value, nb::cast(input.spec.dtype), fmt::format("{}: {}", what, input.name))));
    }
  }
  return inputs;
}

/// Returns all inputs of a branch in their order: the positional ones, then `named`.
Tensors branch_inputs(const char* what, Graph& parent, const Graph& graph, const nb::list& given,
                      const nb::dict& named) {
  Tensors inputs = arguments_of(what, parent, graph, given);
  const auto& ids = graph.input_ids();
  inputs.resize(ids.size());
  for (const auto& [input, tensor] : tensor_map(named)) {
    const auto found = std::find(ids.begin(), ids.end(), input.id());
    require(graph.owns(input) && found != ids.end(), "{}: '{}' is not an input of graph {}", what,
            input.name(), graph.name());
    Tensor& slot = inputs[static_cast<size_t>(found - ids.begin())];
    require(!slot.valid(), "{}: input '{}' of graph {} is given twice", what, input.name(),
            graph.name());
    slot = tensor;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    require(inputs[i].valid(), "Not enough inputs have been provided: {}: input '{}' of graph {}",
            what, graph.info(ids[i]).name, graph.name());
  }
  return inputs;
}

nb::tuple tuple_of(const Tensors& tensors) { return nb::tuple(nb::cast(tensors)); }

int checked_index(const char* what, int i, size_t count) {
  require(i >= 0 && static_cast<size_t>(i) < count, "{}: index must be in [0, {}), got {}", what,
          count, i);
  return i;
}

void bind_call_site(nb::module_& m) {
  nb::class_<CallSiteInfo>(
      m, "CallSiteInfo",
      "One call or repeat of a graph in a parent graph. It reads the graphs at each use, so it has "
      "the outputs that transforms append later.")
      .def_prop_ro(
          "called_graph", [](const CallSiteInfo& c) { return GraphHandle(c.called_graph()); },
          "The called graph; for a repeat, the wrapper graph of the loop.")
      .def_prop_ro("parent", [](const CallSiteInfo& c) { return GraphHandle(c.parent()); })
      .def_prop_ro("inputs", [](const CallSiteInfo& c) { return tuple_of(c.inputs()); })
      .def_prop_ro("outputs", [](const CallSiteInfo& c) { return tuple_of(c.outputs()); })
      .def("parent_input", &CallSiteInfo::input, "i"_a)
      .def("parent_output", &CallSiteInfo::output, "i"_a)
      .def("graph_to_parent", &CallSiteInfo::graph_to_parent, "in_graph"_a,
           "Returns the parent tensor of an input or output of the called graph; inputs are "
           "searched first.")
      .def("parent_to_graph", &CallSiteInfo::parent_to_graph, "in_parent"_a,
           "Returns the first input of the called graph that receives a parent tensor.")
      .def(
          "graph_to_parent_input_index",
          [](const CallSiteInfo& c, int i) {
            return checked_index("graph_to_parent_input_index", i, c.op().inputs.size());
          },
          "i"_a)
      .def(
          "parent_to_graph_input_index",
          [](const CallSiteInfo& c, int i) {
            return checked_index("parent_to_graph_input_index", i, c.op().inputs.size());
          },
          "i"_a)
      .def(
          "graph_to_parent_output_index",
          [](const CallSiteInfo& c, int i) {
            return checked_index("graph_to_parent_output_index", i, c.op().outputs.size());
          },
          "i"_a)
      .def(
          "parent_to_graph_output_index",
          [](const CallSiteInfo& c, int i) {
            return checked_index("parent_to_graph_output_index", i, c.op().outputs.size());
          },
          "i"_a)
      .def("__repr__",
           [](const CallSiteInfo& c) { return "CallSiteInfo[" + c.op().label() + "]"; });
}

/// One conditional in a parent graph. Its op has the condition, the inputs of the first branch, and
/// those of the second one.
struct ConditionalSite {
  GraphHandle parent;
  OpId id;

  const Op& op() const { return parent.get().op(id); }
  Graph& branch(bool then) const { return parent.ir.graph(op().callees[then ? 0 : 1]); }
  /// Position of the first input of a branch among the op's inputs.
  size_t first_input(bool then) const { return then ? 1 : 1 + builtin::then_inputs(op()); }
  Tensor input(int i) const {
    return parent.get().handle(
        op().inputs[static_cast<size_t>(checked_index("parent_input", i, op().inputs.size()))]
            .tensor);
  }
  Tensor output(int i) const {
    return parent.get().handle(
        op().outputs[static_cast<size_t>(checked_index("parent_output", i, op().outputs.size()))]);
  }
  /// Returns the parent tensor of an input or output of a branch.
  Tensor graph_to_parent(const Tensor& t) const {
    for (const bool then : {true, false}) {
      const Graph& graph = branch(then);
      if (!graph.owns(t)) continue;
      const auto& ids = graph.input_ids();
      const auto input_at = std::find(ids.begin(), ids.end(), t.id());
      if (input_at != ids.end())
        return input(static_cast<int>(first_input(then)) +
                     static_cast<int>(input_at - ids.begin()));
      const auto& results = graph.output_ids();
      const auto output_at = std::find(results.begin(), results.end(), t.id());
      if (output_at != results.end()) return output(static_cast<int>(output_at - results.begin()));
    }
    fail(ErrorKind::kUsage, "{}: tensor '{}' is neither an input nor an output of its branches",
         op().label(), t.name());
  }
};

void bind_conditional_site(nb::module_& m) {
  nb::class_<ConditionalSite>(m, "ConditionalSiteInfo",
                              "One conditional in a parent graph. Parent input 0 is the condition.")
      .def_prop_ro(
          "called_graph",
          [](const ConditionalSite& c) {
            return nb::make_tuple(GraphHandle(c.branch(true)), GraphHandle(c.branch(false)));
          },
          "The branches: (then, else).")
      .def_prop_ro("parent", [](const ConditionalSite& c) { return c.parent; })
      .def_prop_ro("inputs",
                   [](const ConditionalSite& c) {
                     nb::list all;
                     for (size_t i = 0; i < c.op().inputs.size(); ++i)
                       all.append(c.input(static_cast<int>(i)));
                     return nb::tuple(all);
                   })
      .def_prop_ro("outputs",
                   [](const ConditionalSite& c) {
                     nb::list all;
                     for (size_t i = 0; i < c.op().outputs.size(); ++i)
                       all.append(c.output(static_cast<int>(i)));
                     return nb::tuple(all);
                   })
      .def("parent_input", &ConditionalSite::input, "i"_a)
      .def("parent_output", &ConditionalSite::output, "i"_a)
      .def("graph_to_parent", &ConditionalSite::graph_to_parent, "in_graph"_a,
           "Returns the parent tensor of an input or output of a branch.")
      .def(
          "graph_to_parent_input_index",
          [](const ConditionalSite& c, int i, bool then) {
            return static_cast<int>(c.first_input(then)) +
                   checked_index("graph_to_parent_input_index", i,
                                 c.branch(then).input_ids().size());
          },
          "i"_a, "then_branch"_a)
      .def(
          "parent_to_graph_input_index",
          [](const ConditionalSite& c, int i) {
            checked_index("parent_to_graph_input_index", i, c.op().inputs.size());
            require(i > 0, "parent_to_graph_input_index: input 0 is the condition");
            const auto first_else = static_cast<int>(c.first_input(false));
            return i < first_else ? i - 1 : i - first_else;
          },
          "i"_a)
      .def(
          "is_parent_index_in_then_branch",
          [](const ConditionalSite& c, int i) {
            checked_index("is_parent_index_in_then_branch", i, c.op().inputs.size());
            return i > 0 && static_cast<size_t>(i) < c.first_input(false);
          },
          "i"_a);
}

ConditionalSite conditional(const GraphHandle& g, const Tensor& condition, const GraphHandle& then,
                            const GraphHandle& otherwise, const nb::list& then_inputs,
                            const nb::list& else_inputs, const nb::dict& then_named,
                            const nb::dict& else_named) {
  Graph& parent = g.get();
  const AtPythonLine line;
  const Tensors first =
      branch_inputs("conditional: then branch", parent, then.get(), then_inputs, then_named);
  const Tensors second =
      branch_inputs("conditional: else branch", parent, otherwise.get(), else_inputs, else_named);
  const OpIndex index = parent.ops().end_id();
  ops::conditional(parent, condition, then.get(), otherwise.get(), first, second);
  return {g, parent.ops()[index].id};
}

ops::RepeatOptions repeat_options(const std::optional<Tensor>& iteration,
                                  const std::optional<Tensor>& condition) {
  return {iteration.value_or(Tensor()), condition.value_or(Tensor())};
}

/// The body of a loop, or its condition. `function` takes a list of tensors and returns a list.
LoopBody loop_body(const nb::callable& function) {
  return LoopBody([function](const LoopArguments& in) -> Tensors {
    return nb::cast<Tensors>(function(nb::cast(in.arguments())));
  });
}

}  // namespace

Tensor tensor_argument(nb::handle value, const char* what) {
  return object_argument<Tensor>(value, what, "a Tensor");
}

TensorMap tensor_map(const nb::dict& named) {
  TensorMap map;
  for (const auto [input, tensor] : named)
    map.emplace_back(tensor_argument(input, "named input"), tensor_argument(tensor, "named input"));
  return map;
}

void bind_call_methods(nb::class_<GraphHandle>& type) {
  type.def(
          "call_with_info",
          [](const GraphHandle& g, const GraphHandle& callee, const nb::list& inputs,
             const nb::dict& named) {
            const AtPythonLine line;
            return ops::call_with_info(g.get(), callee.get(),
                                       arguments_of("call", g.get(), callee.get(), inputs),
                                       tensor_map(named));
          },
          "callee"_a, "inputs"_a = nb::list(), "named"_a = nb::dict(),
          "Calls a graph. `inputs` fill its inputs from the first; numbers and arrays become "
          "constants. `named` has the remaining ones: {input of the graph: tensor}.")
      .def(
          "repeat_with_info",
          [](const GraphHandle& g, const GraphHandle& body, int64_t trips, const nb::list& inputs,
             const nb::dict& named, const std::optional<Tensor>& iteration,
             const std::optional<Tensor>& condition) {
            const AtPythonLine line;
            return ops::repeat_with_info(g.get(), body.get(), trips,
                                         arguments_of("repeat", g.get(), body.get(), inputs),
                                         tensor_map(named), repeat_options(iteration, condition));
          },
          "body"_a, "trips"_a, "inputs"_a = nb::list(), "named"_a = nb::dict(),
          "iteration"_a = nb::none(), "condition"_a = nb::none(),
          "Runs a graph several times: each iteration receives the outputs of the previous one. "
          "The int32 input `iteration` receives the number of the iteration. An iteration begins "
          "only while the bool input `condition`, by reference, is true.")
      .def("conditional_with_info", conditional, "condition"_a, "then_graph"_a, "else_graph"_a,
           "then_inputs"_a = nb::list(), "else_inputs"_a = nb::list(), "then_named"_a = nb::dict(),
           "else_named"_a = nb::dict(), "Runs one of two graphs. Their outputs have equal specs.")
      .def(
          "repeat_function",
          [](const GraphHandle& g, int64_t n, const nb::callable& body, const Tensors& inputs,
             const std::optional<Infeed>& infeed) {
            const AtPythonLine line;
            return ops::repeat(g.get(), n, loop_body(body), inputs, infeed);
          },
          "n"_a, "body"_a, "inputs"_a, "infeed"_a = nb::none(),
          "Runs a function from lists of tensors to lists of tensors `n` times on the device.")
      .def(
          "while_loop",
          [](const GraphHandle& g, const nb::callable& condition, const nb::callable& body,
             const Tensors& inputs, const std::optional<Infeed>& infeed, int64_t max_iterations) {
            const AtPythonLine line;
            return ops::while_loop(g.get(), loop_body(condition), loop_body(body), inputs, infeed,
                                   max_iterations);
          },
          "condition"_a, "body"_a, "inputs"_a, "infeed"_a = nb::none(),
          "max_iterations"_a = std::numeric_limits<int32_t>::max(),
          "Runs a function while another returns a true scalar bool. Both take a list of tensors.")
      .def(
          "scan",
          [](const GraphHandle& g, const GraphHandle& body, const Tensors& carried,
             const Tensors& sequences, const nb::dict& named, bool descending) {
            const AtPythonLine line;
            const ops::ScanResults results =
                ops::scan(g.get(), body.get(), carried, sequences, tensor_map(named),
                          descending ? ops::RowOrder::kDescending : ops::RowOrder::kAscending);
            return nb::make_tuple(tuple_of(results.carried), tuple_of(results.rows));
          },
          "body"_a, "carried"_a, "sequences"_a, "named"_a = nb::dict(), "descending"_a = false,
          "Runs a graph for each row of the sequences. Returns (carried values, rows).");
}

void bind_calls(nb::module_& m) {
  bind_call_site(m);
  bind_conditional_site(m);
}

}  // namespace sluice::python
