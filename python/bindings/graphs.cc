#include "python/bindings/graphs.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/base/provenance.h"
#include "sluice/ir/call.h"

namespace sluice::python {
namespace {

nb::tuple tuple_of(const Tensors& tensors) { return nb::tuple(nb::cast(tensors)); }

void bind_building(nb::class_<GraphHandle>& type) {
  type.def(
          "input",
          [](const GraphHandle& g, const nb::object& shape, const nb::object& dtype,
             const std::string& name, bool by_ref, const nb::object& meta_shape) {
            return g.get().input(
                {shape_argument(shape), dtype_argument(dtype), shape_argument(meta_shape)}, name,
                by_ref ? Pass::kByReference : Pass::kByValue);
          },
          "shape"_a, "dtype"_a = f32, "name"_a = "t", "by_ref"_a = false,
          "meta_shape"_a = nb::tuple(),
          "Adds an input after the existing ones. The caller sees what the graph writes to an "
          "input that is passed by reference.")
      .def(
          "constant",
          [](const GraphHandle& g, const nb::object& data, const nb::object& dtype,
             const std::string& name) {
            return g.get().constant(host_value(data, dtype, "constant"), name);
          },
          "data"_a, "dtype"_a = nb::none(), "name"_a = "t", "Adds a constant.")
      .def(
          "call",
          [](const nb::object& self, const nb::args& args, const nb::kwargs& named) -> nb::object {
            return self.attr("call_with_info")(*args, **named).attr("outputs");
          },
          nb::sig("def call(self, callee: Graph, inputs: list = [], named: dict = {}) -> tuple"),
          "Calls a graph; returns its outputs. Arguments are those of call_with_info().")
      .def(
          "repeat",
          [](const nb::object& self, const nb::args& args, const nb::kwargs& named) -> nb::object {
            return self.attr("repeat_with_info")(*args, **named).attr("outputs");
          },
          nb::sig("def repeat(self, body: Graph, trips: int, inputs: list = [], named: dict = {}, "
                  "iteration: Tensor | None = None, condition: Tensor | None = None) -> tuple"),
          "Repeats a graph; returns the outputs of the last iteration. Arguments are those of "
          "repeat_with_info().")
      .def(
          "set_outputs",
          [](const GraphHandle& g, const Tensors& outputs) { g.get().set_outputs(outputs); },
          "outputs"_a)
      .def(
          "add_output", [](const GraphHandle& g, const Tensor& t) { g.get().add_output(t); },
          "output"_a)
      .def(
          "share_variable",
          [](const GraphHandle& g, const Tensor& from) {
            Ir ir = g.ir;
            return ir.share_variable(from, g.get());
          },
          "variable"_a,
          "Adds a variable of another entry graph to this one. Both programs use one storage.");
}

/// Returns the tensors of a graph that are of one kind, in the order in which they were made.
Tensors tensors_of(const Graph& graph, std::optional<TensorKind> kind) {
  Tensors all;
  for (const TensorId id : graph.tensors().ids()) {
    if (!kind || graph.info(id).kind == *kind) all.push_back(graph.handle(id));
  }
  return all;
}

/// Returns the graphs that the ops of a graph call, each once, in the order of their first calls.
nb::tuple called_graphs(const GraphHandle& g) {
  std::vector<GraphId> ids;
  for (const Op& op : g.get().ops()) {
    for (const GraphId callee : op.callees) {
      if (std::find(ids.begin(), ids.end(), callee) == ids.end()) ids.push_back(callee);
    }
  }
  nb::list graphs;
  for (const GraphId id : ids) graphs.append(GraphHandle(g.ir.graph(id)));
  return nb::tuple(graphs);
}

Tensor tensor_named(const Graph& graph, const std::string& name) {
  for (const TensorId id : graph.tensors().ids()) {
    if (graph.info(id).name == name) return graph.handle(id);
  }
  fail(ErrorKind::kUsage, "graph {}: must have a tensor named '{}'", graph.name(), name);
}

void bind_tensors_of(nb::class_<GraphHandle>& type) {
  type.def_prop_ro("inputs", [](const GraphHandle& g) { return tuple_of(g.get().inputs()); })
      .def_prop_ro(
          "inputs_by_name",
          [](const GraphHandle& g) {
            nb::dict inputs;
            for (const Tensor& t : g.get().inputs()) inputs[t.name().c_str()] = t;
            return inputs;
          },
          "The inputs by their names.")
      .def_prop_ro(
          "inputs_by_reference",
          [](const GraphHandle& g) {
            Tensors inputs;
            for (const Tensor& t : g.get().inputs())
              if (g.get().info(t).pass == Pass::kByReference) inputs.push_back(t);
            return tuple_of(inputs);
          },
          "The inputs that are passed by reference.")
      .def_prop_ro("outputs", [](const GraphHandle& g) { return tuple_of(g.get().outputs()); })
      .def_prop_ro(
          "original_outputs",
          [](const GraphHandle& g) { return tuple_of(g.get().original_outputs()); },
          "The outputs, without those that transforms appended.")
      .def_prop_ro("variables", [](const GraphHandle& g) { return tuple_of(g.get().variables()); })
      .def_prop_ro(
          "constants",
          [](const GraphHandle& g) { return tuple_of(tensors_of(g.get(), TensorKind::kConstant)); })
      .def_prop_ro(
          "tensors", [](const GraphHandle& g) { return tuple_of(tensors_of(g.get(), {})); },
          "All tensors of the graph.")
      .def(
          "get_tensor",
          [](const GraphHandle& g, const std::string& name) { return tensor_named(g.get(), name); },
          "name"_a, "Returns the tensor of this name.")
      .def("__contains__", [](const GraphHandle& g, const Tensor& t) { return g.get().owns(t); });
}

void bind_reading(nb::class_<GraphHandle>& type) {
  type.def_prop_ro("name", [](const GraphHandle& g) { return g.get().name(); })
      .def_prop_ro("ir", [](const GraphHandle& g) { return g.ir; })
      .def_prop_ro("id", [](const GraphHandle& g) { return static_cast<int64_t>(g.id); })
      .def_prop_ro("is_entry", [](const GraphHandle& g) { return g.get().is_entry(); })
      .def_prop_ro("called_graphs", called_graphs,
                   "The graphs that the ops call, in the order of their first calls.")
      .def(
          "lines",
          [](const GraphHandle& g) {
            std::vector<std::string> lines;
            for (const Op& op : g.get().ops()) lines.push_back(op.provenance->line);
            return lines;
          },
          "Source line of each op, in order.")
      .def(
          "module_paths",
          [](const GraphHandle& g) {
            std::vector<std::string> paths;
            for (const Op& op : g.get().ops()) paths.push_back(op.provenance->module_path);
            return paths;
          },
          "Module path of each op, in order.")
      .def(
          "devices",
          [](const GraphHandle& g) {
            nb::list devices;
            for (const Op& op : g.get().ops()) {
              devices.append(op.device == kInheritDevice ? nb::none()
                                                         : nb::object(nb::int_(op.device)));
            }
            return devices;
          },
          "Device of each op, in order; None: that of the caller.")
      .def(
          "print_schedule",
          [](const GraphHandle& g, const std::map<std::string, Tensor>& named) {
            return print_schedule(g.get(), {named.begin(), named.end()});
          },
          "named"_a = nb::dict(),
          "Returns the ops in their order, in the format of the documents. The inputs of `named` "
          "print as \"key=%i\".")
      .def(
          "__eq__", [](const GraphHandle& a, const GraphHandle& b) { return a == b; },
          nb::is_operator())
      .def("__hash__",
           [](const GraphHandle& g) { return g.ir.id() * 1'000'003 + static_cast<uint64_t>(g.id); })
      .def("__repr__", [](const GraphHandle& g) { return "Graph[" + g.get().name() + "]"; })
      .def("__enter__",
           [](const nb::object& self) {
             nb::module_::import_("sluice._context").attr("enter")(self);
             return self;
           })
      .def("__exit__", [](const nb::object& self, const nb::args&) {
        nb::module_::import_("sluice._context").attr("leave")(self);
      });
}

}  // namespace

void bind_graphs(nb::module_& m) {
  bind_variables(m);
  bind_transfers(m);
  bind_ir(m);
  bind_calls(m);
  nb::class_<GraphHandle> graph(
      m, "Graph",
      "An ordered list of ops with inputs and outputs. Within `with graph:` it is the graph to "
      "which functions without operands add.");
  bind_building(graph);
  bind_variable_methods(graph);
  bind_call_methods(graph);
  bind_transfer_methods(graph);
  bind_tensors_of(graph);
  bind_reading(graph);
  bind_scopes(m);
  bind_transforms(m);
  bind_batch_serialise(m);
}

}  // namespace sluice::python
