#include "sluice/ir/variable.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/base/checked.h"
#include "sluice/ir/initializer.h"

/// Variables in device memory and in remote buffers, whole or as shards, and their first values.
namespace sluice::python {
namespace {

using Grouping = std::optional<ReplicaGrouping>;

/// The first value of a variable: an array, or a rule for a shape.
struct FirstValue {
  Initializer initializer;
  TensorSpec spec;  ///< Spec of the value of one group.
};

/// Returns the first value that `data` describes: an Initializer with a shape, or an array. With
/// several groups, an array has them as its first axis.
FirstValue first_value(const nb::object& data, const nb::object& dtype, const nb::object& shape,
                       const Grouping& grouping, const char* what) {
  const int groups = grouping ? grouping->groups() : 1;
  const Initializer* rule = nullptr;
  if (nb::try_cast(data, rule, /*convert=*/false)) {
    require(!shape.is_none(), "{}: a rule for the first value needs a shape", what);
    return {*rule, {shape_argument(shape), dtype.is_none() ? f32 : dtype_argument(dtype), {}}};
  }
  HostTensor value = host_value(data, dtype, what);
  TensorSpec spec = value.spec();
  if (groups > 1) {
    require(spec.shape.rank() > 0 && spec.shape[0] == groups,
            "{}: the first axis must have the {} groups of replicas, got {}", what, groups,
            to_string(spec));
    spec.shape = Shape(std::vector<int64_t>(spec.shape.begin() + 1, spec.shape.end()));
  }
  return {Initializer::array(std::move(value)), spec};
}

Tensor add_variable(const GraphHandle& g, const nb::object& data, const nb::object& dtype,
                    const std::string& name, const std::string& path, const nb::object& shape,
                    const Grouping& grouping) {
  FirstValue value = first_value(data, dtype, shape, grouping, "variable");
  VariableInfo info;
  info.path = path;
  info.initializer = std::move(value.initializer);
  info.group = grouping;
  return g.get().variable(value.spec, std::move(info), name);
}

/// Returns the number of replicas that share a tensor: `shards`, or the replicas of a group.
int shard_count(const Ir& ir, int shards, const Grouping& grouping, const char* what) {
  const int replicas = ir.fix_replication("replicated tensor sharding");
  const int size = grouping ? grouping->size() : replicas;
  const int count = shards == 0 ? size : shards;
  require(count >= 1 && size % count == 0,
          "{}: shards must divide the {} replicas of a group, got {}", what, size, count);
  return count;
}

Tensor add_sharded(const GraphHandle& g, const nb::object& data, const nb::object& dtype,
                   const std::string& name, const std::string& path, const nb::object& shape,
                   const Grouping& grouping, int shards) {
  FirstValue value = first_value(data, dtype, shape, grouping, "sharded_variable");
  VariableInfo info;
  info.path = path;
  info.initializer = std::move(value.initializer);
  info.group = grouping;
  info.shard = shard_count(g.ir, shards, grouping, "sharded_variable");
  const TensorSpec shard{
      {ceil_div(value.spec.elements(), info.shard)}, value.spec.dtype, value.spec.shape};
  return g.get().variable(shard, std::move(info), name);
}

Tensor add_remote(const GraphHandle& g, const nb::object& data, const RemoteBufferHandle& buffer,
                  int64_t entry, const nb::object& dtype, const std::string& name,
                  const std::string& path, const nb::object& shape, const Grouping& grouping,
                  int shards) {
  const TensorSpec& slot = buffer.buffer.spec;
  const bool sharded = !slot.meta_shape.empty();
  const FirstValue value = first_value(data, dtype, shape, grouping, "remote_variable");
  const TensorSpec whole{sharded ? slot.meta_shape : slot.shape, slot.dtype, {}};
  require(value.spec == whole, "remote_variable '{}': must be {} as its buffer, got {}", name,
          to_string(whole), to_string(value.spec));
  require(entry >= 0 && entry < buffer.ir.remote_entries(buffer.buffer),
          "remote_variable '{}': entry must be in [0, {}), got {}", name,
          buffer.ir.remote_entries(buffer.buffer), entry);
  require(buffer.ir.id() == g.ir.id(), "remote_variable '{}': its buffer belongs to another Ir",
          name);
  VariableInfo info;
  info.path = path;
  info.initializer = value.initializer;
  info.group = grouping;
  info.location = {buffer.buffer.id, entry};
  if (sharded) info.shard = shard_count(g.ir, shards, grouping, "remote_variable");
  return g.get().variable(slot, std::move(info), name);
}

void bind_initializer(nb::module_& m) {
  nb::class_<Initializer>(m, "Initializer",
                          "A rule for the first value of a variable, which is not allocated.")
      .def_static("constant", &Initializer::constant, "value"_a)
      .def_static("normal", &Initializer::normal, "mean"_a = 0.0, "deviation"_a = 1.0)
      .def_static("truncated_normal", &Initializer::truncated_normal, "mean"_a = 0.0,
                  "deviation"_a = 1.0, "As normal(); values beyond two deviations are drawn again.")
      .def_static("uniform", &Initializer::uniform, "low"_a, "high"_a)
      .def_static("orthogonal", &Initializer::orthogonal, "rows"_a, "columns"_a, "gain"_a = 1.0,
                  "Each rows·columns consecutive elements are an orthogonal matrix times `gain`.")
      .def_static("file", &Initializer::file, "path"_a, "offset"_a = 0,
                  "Elements of the variable's dtype, row-major, from byte `offset` of a file on.")
      .def(
          "keyed",
          [](const Initializer& rule, uint64_t seed) {
            return rule.keyed({static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)});
          },
          "seed"_a, "Returns a copy whose random numbers have this seed.")
      .def(
          "evaluate",
          [](const Initializer& rule, const nb::object& shape, const nb::object& dtype) {
            return to_numpy(rule.evaluate({shape_argument(shape), dtype_argument(dtype), {}}));
          },
          "shape"_a, "dtype"_a = f32, "Returns the first value of a variable.")
      .def("__repr__", &Initializer::text);
}

}  // namespace

void bind_variable_methods(nb::class_<GraphHandle>& type) {
  type.def("variable", add_variable, "data"_a, "dtype"_a = nb::none(), "name"_a = "t",
           "path"_a = "", "shape"_a = nb::none(), "grouping"_a = nb::none(),
           "Adds a variable, in entry graphs only. `data` is its first value, or an Initializer "
           "for `shape`. `path` is its key in files (default: the name). Replicas of a group hold "
           "one value (default: all); with several groups, they are the first axis of `data`.")
      .def("sharded_variable", add_sharded, "data"_a, "dtype"_a = nb::none(), "name"_a = "t",
           "path"_a = "", "shape"_a = nb::none(), "grouping"_a = nb::none(), "shards"_a = 0,
           "Adds a variable of which each replica of a group holds one of `shards` chunks (0: one "
           "for each replica). The tensor is the chunk; its meta_shape is the shape of the whole.")
      .def("remote_variable", add_remote, "data"_a, "buffer"_a, "entry"_a = 0,
           "dtype"_a = nb::none(), "name"_a = "t", "path"_a = "", "shape"_a = nb::none(),
           "grouping"_a = nb::none(), "shards"_a = 0,
           "Adds a variable whose only copy is an entry of a remote buffer. Load it with "
           "remote_load(). If the entries are shards, `data` is the whole tensor.");
}

void bind_variables(nb::module_& m) { bind_initializer(m); }

}  // namespace sluice::python
