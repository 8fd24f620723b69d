#include "python/bindings/graphs.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "sluice/base/provenance.h"
#include "sluice/ir/call.h"

namespace sluice::python {
namespace {

/// Returns a value of the host as an array of the library. Python's numbers and lists, and numpy's
/// float64 and int64, become 32-bit if no dtype is given.
HostTensor host_value(const nb::object& data, const nb::object& dtype, const std::string& what) {
  const ArgumentArray array = array_argument(data, Access::kRead, what);
  HostTensor value(array.spec);
  const std::span<std::byte> bytes = value.bytes();
  if (!bytes.empty()) std::memcpy(bytes.data(), array.data, bytes.size());
  if (!dtype.is_none()) return value.cast(dtype_argument(dtype));
  if (value.dtype() == f64) return value.cast(f32);
  if (value.dtype() == i64) return value.cast(i32);
  return value;
}

void bind_building(nb::class_<GraphHandle>& type) {
  type.def(
          "input",
          [](const GraphHandle& g, const nb::object& shape, const nb::object& dtype,
             const std::string& name, bool by_ref) {
            return g.get().input({shape_argument(shape), dtype_argument(dtype), {}}, name,
                                 by_ref ? Pass::kByReference : Pass::kByValue);
          },
          "shape"_a, "dtype"_a = f32, "name"_a = "t", "by_ref"_a = false,
          "Adds an input after the existing ones. The caller sees what the graph writes to an "
          "input that is passed by reference.")
      .def(
          "variable",
          [](const GraphHandle& g, const nb::object& data, const nb::object& dtype,
             const std::string& name) {
            return g.get().variable(host_value(data, dtype, "variable"), name);
          },
          "data"_a, "dtype"_a = nb::none(), "name"_a = "t",
          "Adds a variable with a first value, in entry graphs only.")
      .def(
          "constant",
          [](const GraphHandle& g, const nb::object& data, const nb::object& dtype,
             const std::string& name) {
            return g.get().constant(host_value(data, dtype, "constant"), name);
          },
          "data"_a, "dtype"_a = nb::none(), "name"_a = "t", "Adds a constant.")
      .def(
          "host_load",
          [](const GraphHandle& g, const H2dStream& stream, const std::string& name) {
            const AtPythonLine line(g.get());
            return g.get().host_load(stream, name);
          },
          "stream"_a, "name"_a = "", "Loads the next entry of a stream into a new tensor.")
      .def(
          "host_store",
          [](const GraphHandle& g, const D2hStream& stream, const Tensor& t) {
            const AtPythonLine line(g.get());
            g.get().host_store(stream, t);
          },
          "stream"_a, "t"_a, "Stores a tensor as the next entry of a stream.")
      .def(
          "call",
          [](const GraphHandle& g, const GraphHandle& callee, const std::vector<Tensor>& inputs) {
            const AtPythonLine line(g.get());
            return ops::call(g.get(), callee.get(), inputs);
          },
          "callee"_a, "inputs"_a, "Calls a graph; returns its outputs.")
      .def(
          "repeat",
          [](const GraphHandle& g, const GraphHandle& body, int64_t trips,
             const std::vector<Tensor>& inputs) {
            const AtPythonLine line(g.get());
            return ops::repeat(g.get(), body.get(), trips, inputs);
          },
          "body"_a, "trips"_a, "inputs"_a,
          "Runs a graph several times: each iteration receives the outputs of the previous one.")
      .def(
          "set_outputs",
          [](const GraphHandle& g, const std::vector<Tensor>& outputs) {
            g.get().set_outputs(outputs);
          },
          "outputs"_a);
}

void bind_reading(nb::class_<GraphHandle>& type) {
  type.def_prop_ro("name", [](const GraphHandle& g) { return g.get().name(); })
      .def_prop_ro("ir", [](const GraphHandle& g) { return g.ir; })
      .def_prop_ro("inputs",
                   [](const GraphHandle& g) { return nb::tuple(nb::cast(g.get().inputs())); })
      .def_prop_ro("outputs",
                   [](const GraphHandle& g) { return nb::tuple(nb::cast(g.get().outputs())); })
      .def_prop_ro("variables",
                   [](const GraphHandle& g) { return nb::tuple(nb::cast(g.get().variables())); })
      .def(
          "lines",
          [](const GraphHandle& g) {
            std::vector<std::string> lines;
            for (const Op& op : g.get().ops()) lines.push_back(op.provenance->line);
            return lines;
          },
          "Source line of each op, in order.")
      .def(
          "print_schedule", [](const GraphHandle& g) { return print_schedule(g.get()); },
          "Returns the ops in their order, in the format of the documents.")
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
  nb::class_<Ir> ir(m, "Ir", "A program: entry graphs, subgraphs, streams, remote buffers.");
  nb::class_<GraphHandle> graph(
      m, "Graph",
      "An ordered list of ops with inputs and outputs. Within `with graph:` it is the graph to "
      "which functions without operands add.");
  ir.def(nb::init<int>(), "replication"_a = 1)
      .def_prop_ro("id", &Ir::id)
      .def_prop_rw("replication", &Ir::replication, &Ir::set_replication,
                   "Number of replicas that run the program, each on its own data.")
      .def_prop_ro("main_graph", [](Ir& self) { return GraphHandle(self.main_graph()); })
      .def(
          "entry_graph",
          [](Ir& self, const std::string& name) { return GraphHandle(self.entry_graph(name)); },
          "name"_a, "Returns the entry graph of this name; makes it on first use.")
      .def(
          "create_empty_graph",
          [](Ir& self, const std::string& name) {
            return GraphHandle(self.create_empty_graph(name));
          },
          "name"_a = "graph")
      .def(
          "h2d_stream",
          [](Ir& self, const nb::object& shape, const nb::object& dtype, const std::string& name) {
            return self.h2d_stream({shape_argument(shape), dtype_argument(dtype), {}}, name);
          },
          "shape"_a, "dtype"_a = f32, "name"_a = "h2d_stream")
      .def(
          "d2h_stream",
          [](Ir& self, const nb::object& shape, const nb::object& dtype, const std::string& name) {
            return self.d2h_stream({shape_argument(shape), dtype_argument(dtype), {}}, name);
          },
          "shape"_a, "dtype"_a = f32, "name"_a = "d2h_stream");
  bind_building(graph);
  bind_reading(graph);
}

}  // namespace sluice::python
