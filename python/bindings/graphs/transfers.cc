#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs/parts.h"
#include "sluice/ir/stream.h"

/// Transfers between device memory and the host or remote memory: streams, feeds, remote buffers.
namespace sluice::python {
namespace {

void bind_remote_buffer(nb::module_& m) {
  nb::class_<RemoteBufferHandle>(
      m, "RemoteBuffer",
      "Slots (\"entries\") of one spec in remote memory. Every replica has its own slots. "
      "Ir.remote_buffer() makes it.")
      .def_prop_ro("id", [](const RemoteBufferHandle& b) { return b.buffer.id; })
      .def_prop_ro("ir", [](const RemoteBufferHandle& b) { return b.ir; })
      .def_prop_ro("spec", [](const RemoteBufferHandle& b) { return b.buffer.spec; })
      .def_prop_ro("dtype", [](const RemoteBufferHandle& b) { return b.buffer.spec.dtype; })
      .def_prop_ro("shape",
                   [](const RemoteBufferHandle& b) { return to_tuple(b.buffer.spec.shape); })
      .def_prop_ro(
          "meta_shape",
          [](const RemoteBufferHandle& b) { return to_tuple(b.buffer.spec.meta_shape); },
          "Shape of the whole tensor if the entries are shards; () otherwise.")
      .def_prop_ro(
          "entries", [](const RemoteBufferHandle& b) { return b.ir.remote_entries(b.buffer); },
          "Number of slots.")
      .def(
          "grow", [](RemoteBufferHandle& b, int64_t entries) { b.ir.grow(b.buffer, entries); },
          "entries"_a, "Grows the buffer to at least `entries` entries.")
      .def(
          "__eq__",
          [](const RemoteBufferHandle& a, const RemoteBufferHandle& b) {
            return a.buffer == b.buffer;
          },
          nb::is_operator())
      .def("__hash__",
           [](const RemoteBufferHandle& b) {
             return b.buffer.ir * 1'000'003 + static_cast<uint64_t>(b.buffer.id);
           })
      .def("__repr__", [](const RemoteBufferHandle& b) {
        return fmt::format("RemoteBuffer[{} {} entries={}]", b.buffer.id, to_string(b.buffer.spec),
                           b.ir.remote_entries(b.buffer));
      });
}

template <typename F>
void bind_feed(nb::module_& m, const char* name, const char* doc) {
  nb::class_<F>(m, name, doc)
      .def_ro("name", &F::name)
      .def_prop_ro(
          "fields",
          [](const F& feed) {
            nb::dict fields;
            for (const FeedField& field : feed.fields) fields[field.name.c_str()] = field.spec;
            return fields;
          },
          "The specs of the fields by name, in their order.")
      .def_prop_ro("streams", [](const F& feed) { return nb::tuple(nb::cast(feed.streams)); })
      .def(
          "__eq__",
          [](const F& a, const F& b) { return a.ir == b.ir && a.id == b.id && a.name == b.name; },
          nb::is_operator())
      .def("__hash__",
           [](const F& feed) { return feed.ir * 1'000'003 + static_cast<uint64_t>(feed.id); })
      .def("__repr__", [name](const F& feed) { return fmt::format("{}[{}]", name, feed.name); });
}

/// Converts {name: spec or (shape, dtype)}.
std::vector<FeedField> fields_argument(const nb::dict& given) {
  std::vector<FeedField> fields;
  for (const auto [name, value] : given) {
    const TensorSpec* spec = nullptr;
    FeedField field{nb::cast<std::string>(name), {}};
    if (nb::try_cast(value, spec, /*convert=*/false)) {
      field.spec = *spec;
    } else {
      require(nb::len_hint(value) == 2, "feed: field '{}' must be a TensorSpec or (shape, dtype)",
              field.name);
      field.spec = {shape_argument(value[0]), dtype_argument(value[1]), {}};
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

void bind_stream_transfers(nb::class_<GraphHandle>& type) {
  type.def(
          "host_load",
          [](const GraphHandle& g, const H2dStream& stream, const std::string& name) {
            const AtPythonLine line;
            return g.get().host_load(stream, name);
          },
          "stream"_a, "name"_a = "", "Loads the next entry of a stream into a new tensor.")
      .def(
          "host_store",
          [](const GraphHandle& g, const D2hStream& stream, const Tensor& t) {
            const AtPythonLine line;
            g.get().host_store(stream, t);
          },
          "stream"_a, "t"_a, "Stores a tensor as the next entry of a stream.")
      .def(
          "dequeue",
          [](const GraphHandle& g, const Infeed& feed) {
            const AtPythonLine line;
            const Tensors loaded = g.get().dequeue(feed);
            nb::dict fields;
            for (size_t i = 0; i < loaded.size(); ++i)
              fields[feed.fields[i].name.c_str()] = loaded[i];
            return fields;
          },
          "feed"_a, "Loads the next element of a feed; returns its fields by name, in order.")
      .def(
          "enqueue",
          [](const GraphHandle& g, const Outfeed& feed,
             const std::map<std::string, Tensor>& fields) {
            const AtPythonLine line;
            g.get().enqueue(feed, fields);
          },
          "feed"_a, "fields"_a, "Stores an element of a feed: a tensor for each field, by name.");
}

void bind_remote_transfers(nb::class_<GraphHandle>& type) {
  type.def(
          "remote_load",
          [](const GraphHandle& g, const RemoteBufferHandle& buffer, const nb::object& entry,
             const std::string& name) {
            const AtPythonLine line;
            return g.get().remote_load(buffer.buffer, entry_argument(entry), name);
          },
          "buffer"_a, "entry"_a = 0, "name"_a = "",
          "Loads an entry of a remote buffer into a new tensor. The entry is a number, or a scalar "
          "int32 or uint32 tensor.")
      .def(
          "remote_load_",
          [](const GraphHandle& g, const RemoteBufferHandle& buffer, const nb::object& entry,
             const Tensor& t) {
            const AtPythonLine line;
            return g.get().remote_load_(buffer.buffer, entry_argument(entry), t);
          },
          "buffer"_a, "entry"_a, "t"_a,
          "Loads an entry of a remote buffer over `t`; returns the new version of `t`.")
      .def(
          "remote_store",
          [](const GraphHandle& g, const RemoteBufferHandle& buffer, const nb::object& entry,
             const Tensor& t) {
            const AtPythonLine line;
            g.get().remote_store(buffer.buffer, entry_argument(entry), t);
          },
          "buffer"_a, "entry"_a, "t"_a, "Stores `t` in an entry of a remote buffer.");
}

}  // namespace

RemoteEntry entry_argument(nb::handle entry) {
  const Tensor* tensor = nullptr;
  if (nb::try_cast(entry, tensor, /*convert=*/false)) return *tensor;
  int64_t number = 0;
  if (!nb::try_cast(entry, number)) {
    refuse_type(fmt::format("entry: must be an integer or a tensor, got {}",
                            nb::cast<std::string>(entry.type().attr("__name__"))));
  }
  return number;
}

void bind_transfer_methods(nb::class_<GraphHandle>& graph) {
  bind_stream_transfers(graph);
  bind_remote_transfers(graph);
}

void bind_feeds_of(nb::class_<Ir>& ir) {
  ir.def(
        "infeed",
        [](Ir& self, const std::string& name, const nb::dict& fields, int prefetch_depth) {
          return self.infeed(name, fields_argument(fields), {prefetch_depth});
        },
        "name"_a, "fields"_a, "prefetch_depth"_a = 3,
        "Makes a feed from the host: a sequence of elements with named fields. `fields` is "
        "{name: TensorSpec or (shape, dtype)}. The host makes `prefetch_depth` elements in "
        "advance for each replica.")
      .def(
          "outfeed",
          [](Ir& self, const std::string& name, const nb::dict& fields, int depth) {
            return self.outfeed(name, fields_argument(fields), {depth});
          },
          "name"_a, "fields"_a, "depth"_a = 3,
          "Makes a feed to the host. `depth` elements of each replica may be queued for the host.");
}

void bind_transfers(nb::module_& m) {
  bind_remote_buffer(m);
  bind_feed<Infeed>(m, "Infeed", "A sequence of elements from the host. Ir.infeed() makes it.");
  bind_feed<Outfeed>(m, "Outfeed", "A sequence of elements for the host. Ir.outfeed() makes it.");
}

}  // namespace sluice::python
