#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/copies/split_stores.h"
#include "sluice/transforms/decompose_sum.h"
#include "sluice/transforms/recompute.h"

/// Transforms of graphs: gradients, accumulation, recomputation.
namespace sluice::python {
namespace {

using transforms::AccumulationResult;
using transforms::AddedInput;
using transforms::ExpectedConnection;
using transforms::GradGraphInfo;
using transforms::RecomputeResult;

nb::dict to_dict(const TensorMap& map) {
  nb::dict result;
  for (const auto& [key, value] : map) result[nb::cast(key)] = value;
  return result;
}

nb::dict to_dict(const std::unordered_map<Tensor, Tensor>& map) {
  nb::dict result;
  for (const auto& [key, value] : map) result[nb::cast(key)] = value;
  return result;
}

std::map<GraphId, GradGraphInfo> called_graphs_of(const nb::dict& given) {
  std::map<GraphId, GradGraphInfo> called;
  for (const auto [graph, info] : given)
    called.emplace(object_argument<GraphHandle>(graph, "called_graphs", "a Graph").id,
                   object_argument<GradGraphInfo>(info, "called_graphs", "a GradGraphInfo"));
  return called;
}

transforms::Unreachable unreachable_argument(const std::string& word) {
  return word_argument<transforms::Unreachable>(
      "autodiff: unreachable", word,
      {{"error", transforms::Unreachable::kError}, {"zeros", transforms::Unreachable::kZeros}});
}

transforms::Iterations iterations_argument(const std::string& word) {
  return word_argument<transforms::Iterations>(
      "autodiff: iterations", word,
      {{"keep", transforms::Iterations::kKeep}, {"recompute", transforms::Iterations::kRecompute}});
}

GradGraphInfo autodiff(const GraphHandle& graph, const std::optional<Tensors>& provided,
                       const std::optional<Tensors>& required, const nb::dict& called_graphs,
                       const std::string& unreachable, const std::string& iterations) {
  const AtPythonLine line;
  return transforms::autodiff(graph.get(), {.grads_provided = provided,
                                            .grads_required = required,
                                            .called_graphs = called_graphs_of(called_graphs),
                                            .unreachable = unreachable_argument(unreachable),
                                            .iterations = iterations_argument(iterations)});
}

/// `tensors` is a list, or a dict from the keys of the accumulators.
AccumulationResult accumulate(const GraphHandle& graph, const nb::object& tensors,
                              const std::optional<Tensors>& provided, const Tensors& required,
                              const nb::dict& called_graphs, const std::string& accumulation,
                              int64_t steps, bool advance, const nb::object& dtypes,
                              const std::map<std::string, ReplicaGrouping>& groupings,
                              const std::string& unreachable, const std::string& iterations) {
  using transforms::Accumulation;
  using transforms::Counter;
  std::vector<std::string> names;
  Tensors list;
  if (nb::isinstance<nb::dict>(tensors)) {
    for (const auto [name, tensor] : nb::cast<nb::dict>(tensors)) {
      names.push_back(nb::cast<std::string>(name));
      list.push_back(tensor_argument(tensor, "autodiff_with_accumulation"));
    }
  } else {
    for (const nb::handle tensor : tensors)
      list.push_back(tensor_argument(tensor, "autodiff_with_accumulation"));
  }
  transforms::AccumulationOptions options{
      .grads_provided = provided,
      .grads_required = required,
      .called_graphs = called_graphs_of(called_graphs),
      .unreachable = unreachable_argument(unreachable),
      .iterations = iterations_argument(iterations),
      .accumulation =
          word_argument<Accumulation>("autodiff_with_accumulation: accumulation", accumulation,
                                      {{"sum", Accumulation::kSum},
                                       {"mean", Accumulation::kMean},
                                       {"running_mean", Accumulation::kRunningMean}}),
      .steps = steps,
      .counter = advance ? Counter::kAdvance : Counter::kKeep,
      .replica_groupings = groupings};
  for (const nb::handle dtype : dtypes) options.dtypes.push_back(dtype_argument(dtype));
  const AtPythonLine line;
  return transforms::autodiff_with_accumulation(graph.get(), list, names, options);
}

nb::tuple value_and_grad(const GraphHandle& graph, const Tensors& inputs) {
  require(!inputs.empty(), "value_and_grad: at least one input must be given");
  const AtPythonLine line;
  const transforms::ValueAndGrad result = transforms::value_and_grad(graph.get(), inputs);
  nb::list grads;
  for (const Tensor& grad : result.grads)
    grads.append(grad.valid() ? nb::cast(grad) : nb::object(nb::none()));
  return nb::make_tuple(result.value, nb::tuple(grads));
}

void bind_info(nb::module_& m) {
  nb::enum_<transforms::Connection>(m, "Connection", "The meaning of a tensor of a gradient graph.")
      .value("Fwd", transforms::Connection::kFwd, "The value of a forward tensor.")
      .value("FwdGrad", transforms::Connection::kFwdGrad, "The gradient of a forward tensor.");
  nb::class_<ExpectedConnection>(m, "ExpectedConnection",
                                 "The meaning of an input or output of a gradient graph.")
      .def_ro("connection_type", &ExpectedConnection::type)
      .def_ro("fwd_tensor", &ExpectedConnection::fwd_tensor)
      .def("__repr__", [](const ExpectedConnection& c) {
        return fmt::format("({}, {})", c.type == transforms::Connection::kFwd ? "Fwd" : "FwdGrad",
                           to_string(c.fwd_tensor));
      });
  nb::class_<GradGraphInfo>(m, "GradGraphInfo",
                            "Describes how a gradient graph is connected to its forward graph.")
      .def_prop_ro("graph", [](const GradGraphInfo& i) { return GraphHandle(i.graph()); })
      .def_prop_ro("forward_graph",
                   [](const GradGraphInfo& i) { return GraphHandle(i.forward_graph()); })
      .def_prop_ro(
          "expected_inputs",
          [](const GradGraphInfo& i) { return nb::tuple(nb::cast(i.expected_inputs())); },
          "Inputs of the gradient graph: gradients first, then forward values.")
      .def_prop_ro(
          "expected_outputs",
          [](const GradGraphInfo& i) { return nb::tuple(nb::cast(i.expected_outputs())); },
          "One entry for each output.")
      .def_prop_ro("inputs", [](const GradGraphInfo& i) { return nb::tuple(nb::cast(i.inputs())); })
      .def_prop_ro("outputs",
                   [](const GradGraphInfo& i) { return nb::tuple(nb::cast(i.outputs())); })
      .def(
          "inputs_dict",
          [](const GradGraphInfo& i, const CallSiteInfo& call) {
            return to_dict(i.inputs_dict(call));
          },
          "fwd_call_info"_a,
          "Returns the forward values that the gradient graph needs: {its input: tensor of the "
          "parent of the forward call}. Gradients are not in it; pass them by position.")
      .def(
          "fwd_graph_ins_to_grad_parent_outs",
          [](const GradGraphInfo& i, const CallSiteInfo& grad_call) {
            return to_dict(i.fwd_graph_ins_to_grad_parent_outs(grad_call));
          },
          "grad_call_info"_a, "Returns {input of the forward graph: its gradient in the parent}.")
      .def(
          "fwd_parent_ins_to_grad_parent_outs",
          [](const GradGraphInfo& i, const CallSiteInfo& fwd_call, const CallSiteInfo& grad_call) {
            const AtPythonLine line;
            return to_dict(i.fwd_parent_ins_to_grad_parent_outs(fwd_call, grad_call));
          },
          "fwd_call_info"_a, "grad_call_info"_a,
          "Returns {tensor passed to the forward call: its gradient}. A tensor passed to several "
          "inputs gets the sum of their gradients.")
      .def("__repr__", [](const GradGraphInfo& i) { return to_string(i); });
}

void bind_results(nb::module_& m) {
  nb::class_<AddedInput>(m, "AddedInput",
                         "State of an accumulation: an input by reference that is zero at first.")
      .def_ro("name", &AddedInput::name, "\"mean_accum_counter\", then \"accum.<name>\".")
      .def_ro("spec", &AddedInput::spec)
      .def_ro("input", &AddedInput::input)
      .def_ro("grouping", &AddedInput::group);
  nb::class_<AccumulationResult>(m, "AccumulationResult", "A gradient graph that accumulates.")
      .def_ro("info", &AccumulationResult::info)
      .def_prop_ro(
          "added", [](const AccumulationResult& r) { return nb::tuple(nb::cast(r.added)); },
          "The counter, if any, then one accumulator for each tensor, in the order given.");
  nb::class_<RecomputeResult>(m, "RecomputeResult", "A gradient graph that runs the forward graph.")
      .def_ro("info", &RecomputeResult::info)
      .def_prop_ro(
          "inputs", [](const RecomputeResult& r) { return to_dict(r.inputs); },
          "{input of the original gradient graph: input of the new one}.");
}

}  // namespace

void bind_transforms(nb::module_& m) {
  bind_info(m);
  bind_results(m);
  m.def("autodiff", autodiff, "graph"_a, "grads_provided"_a = nb::none(),
        "grads_required"_a = nb::none(), "called_graphs"_a = nb::dict(), "unreachable"_a = "error",
        "iterations"_a = "keep",
        "Differentiates a graph in reverse mode into a new graph \"<name>_bwd\".\n\n"
        "It takes one gradient for each tensor of `grads_provided` (default: the floating-point "
        "outputs), then forward values. Its outputs are the gradients of `grads_required` "
        "(default: the floating-point inputs). Forward values that are neither inputs nor outputs "
        "are appended to the outputs of `graph` and of its calls.\n\n"
        "called_graphs: {called graph: its GradGraphInfo}, instead of new gradient graphs\n"
        "unreachable: \"error\" or \"zeros\" for a required gradient without a provided one\n"
        "iterations: \"keep\" the values of the iterations of repeats, or \"recompute\" them");
  m.def("autodiff_with_accumulation", accumulate, "graph"_a, "tensors"_a,
        "grads_provided"_a = nb::none(), "grads_required"_a = nb::list(),
        "called_graphs"_a = nb::dict(), "accumulation"_a = "running_mean", "steps"_a = 1,
        "advance_counter"_a = true, "dtypes"_a = nb::list(), "replica_groupings"_a = nb::dict(),
        "unreachable"_a = "error", "iterations"_a = "keep",
        "Runs autodiff(), but accumulates the gradients of `tensors` into inputs by reference.\n\n"
        "`tensors` is a list, or a dict from the keys of the accumulators. `accumulation` is "
        "\"sum\", \"mean\" of `steps` gradients, or \"running_mean\", whose counter advances in "
        "each call if `advance_counter`.");
  m.def("value_and_grad", value_and_grad, "graph"_a, "inputs"_a,
        "Calls a graph with one output of one element, and its gradient. Returns (value, "
        "gradients); None for an input that is not floating point.");
  m.def(
      "recompute_graph",
      [](const GradGraphInfo& info) { return transforms::recompute_graph(info); }, "info"_a,
      "Makes a gradient graph without kept activations: it calls the forward graph again, then the "
      "gradient graph.");
  m.def(
      "decompose_sum", [](const GraphHandle& graph) { transforms::decompose_sum(graph.get()); },
      "graph"_a, "Replaces every Sum of two or more tensors by a chain of Add.");
  m.def(
      "split_stores",
      [](const Ir& ir, const std::string& entry, const std::string& copy,
         const std::vector<D2hStream>& streams) {
        std::set<int32_t> ids;
        for (const D2hStream& stream : streams) {
          require(stream.ir == ir.id(), "split_stores: stream '{}' belongs to another Ir",
                  stream.name);
          ids.insert(stream.id);
        }
        return GraphHandle(transforms::split_stores(ir, entry, copy, ids));
      },
      "ir"_a, "entry"_a, "copy"_a, "streams"_a,
      "Makes entry graph `copy` with the stores to `streams`, and removes them from `entry`.");
}

}  // namespace sluice::python
