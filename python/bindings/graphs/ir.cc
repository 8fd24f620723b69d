#include "sluice/ir/ir.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/base/checked.h"
#include "sluice/ir/replica_grouping.h"

namespace sluice::python {
namespace {

TensorSpec spec_argument(const nb::object& shape, const nb::object& dtype,
                         const nb::object& meta_shape) {
  return {shape_argument(shape), dtype_argument(dtype), shape_argument(meta_shape)};
}

void bind_grouping(nb::module_& m) {
  nb::class_<ReplicaGrouping>(
      m, "ReplicaGrouping",
      "A partition of the replicas into groups of equal size, numbered in the order of their first "
      "replicas. Ir.replica_grouping() makes it.")
      .def_prop_ro("num_replicas", &ReplicaGrouping::replicas)
      .def_prop_ro("stride", &ReplicaGrouping::stride)
      .def_prop_ro("group_size", &ReplicaGrouping::size)
      .def_prop_ro("num_groups", &ReplicaGrouping::groups)
      .def_prop_ro("is_const", &ReplicaGrouping::is_constant,
                   "Whether the grouping has one stride.")
      .def_prop_ro("assignment", &ReplicaGrouping::assignment, nb::rv_policy::copy,
                   "Group of each replica.")
      .def_prop_ro("const_rg", &ReplicaGrouping::const_rg,
                   "The coarsest grouping with one stride whose groups are each contained in one "
                   "group of this grouping.")
      .def("transpose", &ReplicaGrouping::transpose,
           "Returns the grouping whose group i holds the i-th members of all groups of this one.")
      .def("to_device_map", &ReplicaGrouping::to_device_map,
           "Returns, for each group of const_rg, the group of this grouping that contains it.")
      .def("to_host_map", &ReplicaGrouping::to_host_map,
           "Returns, for each group of this grouping, the first group of const_rg in it.")
      .def("group_of", &ReplicaGrouping::group_of, "replica"_a)
      .def("members", &ReplicaGrouping::members, "group"_a, "The replicas of a group, ascending.")
      .def(
          "__eq__", [](const ReplicaGrouping& a, const ReplicaGrouping& b) { return a == b; },
          nb::is_operator())
      .def("__repr__", [](const ReplicaGrouping& g) { return to_string(g); })
      .attr("__hash__") = nb::none();
}

void bind_graphs_of(nb::class_<Ir>& ir) {
  ir.def_prop_ro("main_graph", [](Ir& self) { return GraphHandle(self.main_graph()); })
      .def(
          "entry_graph",
          [](Ir& self, const std::string& name) { return GraphHandle(self.entry_graph(name)); },
          "name"_a, "Returns the entry graph of this name; makes it on first use.")
      .def_prop_ro(
          "entries",
          [](const Ir& self) {
            nb::dict entries;
            for (const auto& [name, id] : self.entries())
              entries[name.c_str()] = GraphHandle(self.graph(id));
            return entries;
          },
          "The entry graphs by name.")
      .def_prop_ro(
          "graphs",
          [](const Ir& self) {
            nb::list graphs;
            for (const GraphId id : self.graph_ids()) graphs.append(GraphHandle(self.graph(id)));
            return nb::tuple(graphs);
          },
          "All graphs, in the order in which they were made.")
      .def(
          "create_empty_graph",
          [](Ir& self, const std::string& name) {
            return GraphHandle(self.create_empty_graph(name));
          },
          "name"_a = "graph", "Makes an empty graph named \"<name>_subgraph(N)\".")
      .def(
          "create_graph",
          [](const nb::object& self, const nb::args& args, const nb::kwargs& named) {
            return nb::module_::import_("sluice._graphs")
                .attr("create_graph")(self, *args, **named);
          },
          nb::sig("def create_graph(self, function: collections.abc.Callable, /, *args, **kwargs)"
                  " -> Graph"),
          "Makes a graph by calling `function` once, with the new graph current.\n\n"
          "A Tensor or TensorSpec argument becomes an input named after its parameter. It is "
          "passed by reference if the parameter has the annotation TensorByRef. The members of a "
          "list, tuple, *args or **kwargs of tensors become inputs, too. Other values are passed "
          "as they are. The function returns nothing, a Tensor, or Tensors: the outputs.")
      .def(
          "to_dot", [](const Ir& self) { return to_dot(self); },
          "Returns the Graphviz text of the program.");
}

/// Returns the streams of one direction that an op of a graph loads from or stores to.
template <typename S>
nb::list streams_in_use(const Ir& ir, Effect::Action action) {
  std::set<int32_t> ids;
  for (const GraphId graph : ir.graph_ids()) {
    for (const Op& op : ir.graph(graph).ops()) {
      for (const Effect& effect : op.effects)
        if (effect.kind == action) ids.insert(effect.id);
    }
  }
  nb::list streams;
  for (const int32_t id : ids)
    streams.append(nb::cast(S{ir.id(), id, ir.stream(id).name, ir.stream(id).spec}));
  return streams;
}

void bind_streams_of(nb::class_<Ir>& ir) {
  ir.def(
        "h2d_stream",
        [](Ir& self, const nb::object& shape, const nb::object& dtype, const std::string& name) {
          return self.h2d_stream(spec_argument(shape, dtype, nb::tuple()), name);
        },
        "shape"_a, "dtype"_a = f32, "name"_a = "h2d_stream")
      .def(
          "d2h_stream",
          [](Ir& self, const nb::object& shape, const nb::object& dtype, const std::string& name) {
            return self.d2h_stream(spec_argument(shape, dtype, nb::tuple()), name);
          },
          "shape"_a, "dtype"_a = f32, "name"_a = "d2h_stream")
      .def_prop_ro(
          "h2d_streams",
          [](const Ir& self) {
            return streams_in_use<H2dStream>(self, Effect::Action::kStreamRead);
          },
          "The streams from the host that a graph loads.")
      .def_prop_ro(
          "d2h_streams",
          [](const Ir& self) {
            return streams_in_use<D2hStream>(self, Effect::Action::kStreamWrite);
          },
          "The streams to the host that a graph stores.")
      .def_prop_ro("stream_count", &Ir::stream_count)
      .def(
          "remote_buffer",
          [](Ir& self, const nb::object& shape, const nb::object& dtype, int64_t entries,
             const nb::object& meta_shape) {
            const TensorSpec spec = spec_argument(shape, dtype, meta_shape);
            return RemoteBufferHandle{self, self.remote_buffer(spec, entries)};
          },
          "shape"_a, "dtype"_a = f32, "entries"_a = 1, "meta_shape"_a = nb::tuple(),
          "Makes a remote buffer: slots of one spec in remote memory. Every replica has its own.")
      .def(
          "sharded_buffer",
          [](Ir& self, const nb::object& shape, const nb::object& dtype, int64_t entries,
             int shards) {
            const int replicas = self.fix_replication("replicated tensor sharding");
            const int count = shards == 0 ? replicas : shards;
            require(count >= 1 && replicas % count == 0,
                    "sharded_buffer: shards must divide the {} replicas, got {}", replicas, count);
            const Shape whole = shape_argument(shape);
            const TensorSpec spec{
                {ceil_div(whole.elements(), count)}, dtype_argument(dtype), whole};
            return RemoteBufferHandle{self, self.remote_buffer(spec, entries)};
          },
          "shape"_a, "dtype"_a = f32, "entries"_a = 1, "shards"_a = 0,
          "Makes a remote buffer whose slots hold one of `shards` chunks of a tensor of `shape` "
          "(0: one for each replica).");
}

}  // namespace

void bind_ir(nb::module_& m) {
  bind_grouping(m);
  nb::class_<Ir> ir(m, "Ir", "A program: entry graphs, subgraphs, streams, remote buffers.");
  ir.def(nb::init<int>(), "replication"_a = 1)
      .def_prop_ro("id", &Ir::id)
      .def_prop_rw("replication", &Ir::replication, &Ir::set_replication,
                   "Number of replicas that run the program, each on its own data.")
      .def("replica_grouping", &Ir::replica_grouping, "stride"_a = 1, "group_size"_a = 0,
           "Returns groups of `group_size` replicas that are `stride` apart. Size 0 means "
           "replicas / stride. Fixes the number of replicas.")
      .def("replica_grouping_from_assignments", &Ir::replica_grouping_from_assignments, "groups"_a,
           "Returns the grouping in which groups[r] is the group of replica r.")
      .def(
          "__eq__", [](const Ir& a, const Ir& b) { return a.id() == b.id(); }, nb::is_operator())
      .def("__hash__", &Ir::id)
      .def("__repr__", [](const Ir& self) { return fmt::format("Ir[{}]", self.id()); });
  bind_graphs_of(ir);
  bind_streams_of(ir);
  bind_feeds_of(ir);
}

}  // namespace sluice::python
