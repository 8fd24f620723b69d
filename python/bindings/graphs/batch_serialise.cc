#include "sluice/transforms/batch_serialise.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "python/bindings/graphs/parts.h"
#include "sluice/base/provenance.h"

/// Phases: graphs that run a graph for one micro-batch after another.
namespace sluice::python {
namespace {

using transforms::BatchHandle;
using transforms::BatchSerialised;
using transforms::BatchSerialisedPair;
using transforms::BatchSerialiseOptions;
using transforms::BatchUpdate;
using transforms::GradGraphInfo;
using transforms::RowOffset;

/// Converts a row: an offset, None for row 0, or a function of the phase's row.
RowOffset row_argument(const nb::object& row) {
  if (row.is_none()) return RowOffset::first();
  int64_t offset = 0;
  if (nb::try_cast(row, offset)) return offset;
  require(PyCallable_Check(row.ptr()) != 0,
          "batch handle: row must be an integer, None or a function of the row, got {}",
          nb::cast<std::string>(nb::str(row.type())));
  return RowOffset::Function([row](const Tensor& of_phase) {
    return tensor_argument(row(of_phase), "batch handle: row");
  });
}

/// The source or target of a tensor: a stream or a buffer.
template <typename Stream>
std::variant<Stream, BatchHandle> handle_argument(nb::handle value) {
  const Stream* stream = nullptr;
  if (nb::try_cast(value, stream, /*convert=*/false)) return *stream;
  return object_argument<BatchHandle>(value, "batch_serialise", "a stream or a BatchHandle");
}

void add_store(BatchSerialiseOptions& options, const Tensor& tensor, nb::handle target) {
  const auto handle = handle_argument<D2hStream>(target);
  if (const auto* stream = std::get_if<D2hStream>(&handle)) {
    options.store_streams.emplace_back(tensor, *stream);
  } else {
    options.store_buffers.emplace_back(tensor, std::get<BatchHandle>(handle));
  }
}

BatchSerialiseOptions options_of(int64_t steps, const nb::dict& loads, const nb::dict& stores,
                                 const std::vector<BatchUpdate>& updates,
                                 const nb::dict& shard_groups,
                                 const std::optional<Tensor>& seed_input, int64_t rows,
                                 const std::string& io_mode) {
  BatchSerialiseOptions options;
  options.steps = steps;
  for (const auto [tensor, source] : loads)
    options.loads.emplace_back(tensor_argument(tensor, "batch_serialise: loads"),
                               handle_argument<H2dStream>(source));
  for (const auto [key, target] : stores) {
    const Tensor tensor = tensor_argument(key, "batch_serialise: stores");
    if (nb::isinstance<nb::list>(target) || nb::isinstance<nb::tuple>(target)) {
      for (const nb::handle each : target) add_store(options, tensor, each);
    } else {
      add_store(options, tensor, target);
    }
  }
  options.updates = updates;
  for (const auto [tensor, group] : shard_groups)
    options.shard_groups.emplace_back(
        tensor_argument(tensor, "batch_serialise: shard_groups"),
        object_argument<ReplicaGrouping>(group, "batch_serialise: shard_groups",
                                         "a ReplicaGrouping"));
  options.seed_input = seed_input.value_or(Tensor());
  options.rows = rows;
  options.io_mode = io_mode_argument(io_mode);
  return options;
}

/// A phase, with the Ir that its handles need.
struct Phase {
  Ir ir;
  BatchSerialised result;
};

void bind_handles(nb::module_& m) {
  nb::class_<BatchHandle>(
      m, "BatchHandle",
      "One tensor for each micro-batch: micro-batch s of row r is entry r * steps + s of a buffer. "
      "`row` is an offset to the row of the phase, None for row 0, or a function from the row to "
      "another scalar int32 tensor. Replicas of `shard_group` hold equal values and store shards.")
      .def(
          "__init__",
          [](BatchHandle* handle, const RemoteBufferHandle& buffer, const nb::object& row,
             const std::optional<ReplicaGrouping>& shard_group) {
            new (handle) BatchHandle{buffer.buffer, row_argument(row), shard_group};
          },
          "buffer"_a, "row"_a.none() = 0, "shard_group"_a = nb::none())
      .def_ro("shard_group", &BatchHandle::shard_group);
  nb::class_<BatchUpdate>(m, "BatchUpdate",
                          "The update of a variable that all micro-batches share: `apply(variable, "
                          "value)` adds its ops after each run of the graph.")
      .def(
          "__init__",
          [](BatchUpdate* update, const Tensor& value, const std::string& name,
             const TensorSpec& spec, const nb::callable& apply) {
            new (update) BatchUpdate{value, name, spec,
                                     [apply](const Tensor& variable, const Tensor& of_batch) {
                                       apply(variable, of_batch);
                                     },
                                     OpRole::kRunningAverage};
          },
          "value"_a, "name"_a, "spec"_a, "apply"_a);
}

void bind_phases(nb::module_& m) {
  nb::class_<Phase>(m, "BatchSerialised", "A phase: a graph without outputs. Input 0 is the row.")
      .def_prop_ro("graph", [](const Phase& p) { return GraphHandle(p.ir.graph(p.result.graph)); })
      .def_prop_ro(
          "inputs",
          [](const Phase& p) {
            nb::dict inputs;
            for (const auto& [key, value] : p.result.inputs) inputs[nb::cast(key)] = value;
            return inputs;
          },
          "{input of the original graph: input of the phase}, for inputs that are neither loaded "
          "nor the seed.")
      .def_prop_ro(
          "updated",
          [](const Phase& p) {
            nb::dict updated;
            for (const auto& [name, input] : p.result.updated) updated[name.c_str()] = input;
            return updated;
          },
          "The inputs by reference of the variables that the phase updates, by name.")
      .def_prop_ro(
          "stored",
          [](const Phase& p) {
            nb::dict stored;
            for (const auto& [tensor, handle] : p.result.stored)
              stored[nb::cast(tensor)] = nb::cast(handle);
            return stored;
          },
          "Tensors of the original graph and the BatchHandle that holds them after a call.")
      .def(
          "buffer_of",
          [](const Phase& p, const Tensor& stored) {
            for (const auto& [tensor, handle] : p.result.stored)
              if (tensor == stored) return RemoteBufferHandle{p.ir, handle.buffer};
            fail(ErrorKind::kUsage, "batch_serialise: '{}' is not stored", stored.name());
          },
          "tensor"_a, "Returns the remote buffer that holds a stored tensor.")
      .def_prop_ro(
          "io_mode", [](const Phase& p) { return io_mode_word(p.result.io_mode); },
          "Mode that the loop uses.")
      .def_prop_ro(
          "note", [](const Phase& p) { return p.result.note; },
          "The reason why the mode differs from the one requested; else empty.");
}

}  // namespace

void bind_batch_serialise(nb::module_& m) {
  bind_handles(m);
  bind_phases(m);
  m.def(
      "batch_serialise",
      [](const GraphHandle& graph, int64_t steps, const nb::dict& loads, const nb::dict& stores,
         const std::vector<BatchUpdate>& updates, const std::optional<Tensor>& seed_input,
         int64_t rows, const std::string& io_mode) {
        const AtPythonLine line;
        return Phase{graph.ir, transforms::batch_serialise(
                                   graph.get(), options_of(steps, loads, stores, updates, {},
                                                           seed_input, rows, io_mode))};
      },
      "graph"_a, "steps"_a, "loads"_a = nb::dict(), "stores"_a = nb::dict(),
      "updates"_a = nb::list(), "seed_input"_a = nb::none(), "rows"_a = 1, "io_mode"_a = "io",
      "Makes a phase: a graph that runs `graph` for `steps` micro-batches, one after another.\n\n"
      "loads: {input: H2dStream or BatchHandle}\n"
      "stores: {output or input: D2hStream, BatchHandle, or a list of them}\n"
      "seed_input: a uint32[2] input that gets a new seed in each iteration\n"
      "io_mode: \"compute\", \"io\" or \"io_overlapped\"; the bits are the same");
  m.def(
      "batch_serialise_fwd_and_grad",
      [](const GradGraphInfo& info, const Tensors& named, int64_t steps, const nb::dict& loads,
         const nb::dict& stores, const std::vector<BatchUpdate>& updates,
         const nb::dict& shard_groups, const std::optional<Tensor>& seed_input, int64_t rows,
         const std::string& io_mode) {
        const AtPythonLine line;
        const Ir ir = info.graph().ir();
        BatchSerialisedPair pair = transforms::batch_serialise_fwd_and_grad(
            info, named,
            options_of(steps, loads, stores, updates, shard_groups, seed_input, rows, io_mode));
        return nb::make_tuple(Phase{ir, std::move(pair.forward)},
                              Phase{ir, std::move(pair.gradient)}, std::move(pair.info));
      },
      "info"_a, "named"_a, "steps"_a, "loads"_a = nb::dict(), "stores"_a = nb::dict(),
      "updates"_a = nb::list(), "shard_groups"_a = nb::dict(), "seed_input"_a = nb::none(),
      "rows"_a = 1, "io_mode"_a = "io",
      "Makes the phases of a graph and of its gradient. Returns (forward, gradient, info).\n\n"
      "A forward tensor that the gradient needs is an input of the gradient phase if it is in "
      "`named`, else loaded from the buffer of `stores` or `loads`, else from a new buffer.");
  m.def(
      "batch_serial_buffer",
      [](const Tensor& t, int64_t steps, int64_t rows,
         const std::optional<ReplicaGrouping>& shard_group) {
        return RemoteBufferHandle{t.graph().ir(),
                                  transforms::batch_serial_buffer(t, steps, rows, shard_group)};
      },
      "t"_a, "steps"_a, "rows"_a = 1, "shard_group"_a = nb::none(),
      "Makes a buffer for `t`, or for its shards, with `rows` rows of `steps` micro-batches.");
}

}  // namespace sluice::python
