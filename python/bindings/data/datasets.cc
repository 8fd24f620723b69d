#include "python/bindings/data/datasets.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "python/bindings/arrays.h"
#include "python/bindings/data/elements.h"

namespace sluice::python {
namespace {

using data::Element;

/// One pass over a dataset. One thread at a time reads it.
struct IteratorHandle : KeepsObjects {
  Released<data::Iterator> pass;
  bool busy = false;  ///< Guarded by the interpreter's lock.

  IteratorHandle(const DatasetHandle& from, uint64_t number)
      : KeepsObjects{from.kept}, pass(unlocked([&] { return from.dataset.iterate(number); })) {}
};

nb::object next_element(IteratorHandle& self) {
  data::Iterator& pass = self.pass.get("iterator");
  require(!self.busy, "iterator: one thread at a time must read it, and no function of its pass");
  self.busy = true;
  std::optional<Element> element;
  try {
    element = unlocked([&] { return pass.next(); });
  } catch (...) {
    self.busy = false;
    throw;
  }
  self.busy = false;
  if (!element) throw nb::stop_iteration();
  return to_python(*std::move(element));
}

/// The context of an element, for maps that differ from epoch to epoch.
void bind_context(nb::module_& m) {
  using data::ElementContext;
  nb::class_<ElementContext>(m, "ElementContext",
                             "The element that a map computes, and a key for random numbers.")
      .def_ro("epoch", &ElementContext::epoch,
              "Number of the pass: the epoch of a loader, or the pass of repeat().")
      .def_ro("index", &ElementContext::index, "Number of the element in a pass of the input.")
      .def_prop_ro(
          "key",
          [](const ElementContext& c) { return static_cast<uint64_t>(c.key.hi) << 32 | c.key.lo; },
          "A pure function of (seed, epoch, index).")
      .def(
          "uniform",
          [](const ElementContext& c, uint64_t number) { return random_unit(c.key, number); },
          "number"_a = 0, "Returns a uniform number in [0, 1): that of this number, by the key.")
      .def(
          "normal",
          [](const ElementContext& c, uint64_t number) { return random_normal(c.key, number); },
          "number"_a = 0, "Returns a standard normal number: that of this number, by the key.")
      .def(
          "rng",
          [](const ElementContext& c) {
            const nb::module_ random = nb::module_::import_("numpy.random");
            return random.attr("Generator")(
                random.attr("Philox")("key"_a = static_cast<uint64_t>(c.key.hi) << 32 | c.key.lo));
          },
          "Returns a numpy.random.Generator that begins with the key.");
}

/// Returns a dataset that `self` is made into, which keeps the same objects, and `more`.
template <typename F>
DatasetHandle derived(const DatasetHandle& self, F&& make, std::vector<nb::object> more = {}) {
  DatasetHandle made(unlocked([&] { return make(self.dataset); }), self.kept);
  made.keep(more);
  return made;
}

/// Maps with a function of the element or, if there is a seed, of the element and its context.
DatasetHandle map(const DatasetHandle& self, const nb::callable& f, std::optional<uint64_t> seed,
                  const nb::object& specs, std::optional<int> workers) {
  const nb::object callback = new_callback(f);
  const auto state = state_of(callback);
  std::optional<data::ElementSpecs> known = specs_argument(specs);
  const auto each = [&](const data::Dataset& dataset) {
    if (seed) {
      data::Dataset::EpochMap call = [state](Element e, const data::ElementContext& context) {
        return call_python(*state, [&](nb::handle f) {
          return element_of(f(to_python(std::move(e)), nb::cast(context)));
        });
      };
      data::MapOptions options{.seed = *seed, .specs = std::move(known)};
      return workers ? dataset.parallel_map(std::move(call), *workers, std::move(options))
                     : dataset.map(std::move(call), std::move(options));
    }
    data::Dataset::Map call = [state](Element e) {
      return call_python(*state,
                         [&](nb::handle f) { return element_of(f(to_python(std::move(e)))); });
    };
    return workers ? dataset.parallel_map(std::move(call), *workers, std::move(known))
                   : dataset.map(std::move(call), std::move(known));
  };
  return derived(self, each, {callback});
}

/// Converts a list of fields: names, numbers, or a dict of them and the values of new entries.
std::vector<data::PaddedField> padded_fields(nb::handle fields, int axis) {
  const auto id_of = [](nb::handle field) {
    return nb::isinstance<nb::int_>(field) ? data::FieldId(nb::cast<int>(field))
                                           : data::FieldId(nb::cast<std::string>(field));
  };
  std::vector<data::PaddedField> padded;
  if (nb::isinstance<nb::dict>(fields)) {
    for (const auto [field, value] : nb::borrow<nb::dict>(fields))
      padded.push_back({id_of(field), nb::cast<double>(value), axis});
  } else if (nb::isinstance<nb::str>(fields) || nb::isinstance<nb::int_>(fields)) {
    padded.push_back({id_of(fields), 0, axis});
  } else {
    for (const nb::handle field : fields) padded.push_back({id_of(field), 0, axis});
  }
  return padded;
}

data::Remainder remainder(bool drop) {
  return drop ? data::Remainder::kDrop : data::Remainder::kKeep;
}

/// Returns a number of elements: an int, infinity, or None if it is not known.
nb::object size_object(std::optional<int64_t> size) {
  if (!size) return nb::none();
  if (*size == data::kForever) return nb::float_(std::numeric_limits<double>::infinity());
  return nb::int_(*size);
}

void bind_reading(nb::class_<DatasetHandle>& type) {
  type.def(
          "__iter__", [](const DatasetHandle& self) { return IteratorHandle(self, 0); },
          "Begins pass 0.")
      .def(
          "iterate",
          [](const DatasetHandle& self, uint64_t pass) { return IteratorHandle(self, pass); },
          "number"_a = 0, "Begins a pass. repeat() numbers the passes of its input from 0.")
      .def(
          "__len__",
          [](const DatasetHandle& self) {
            const auto size = unlocked([&] { return self.dataset.size(); });
            if (!size) throw nb::type_error("the number of elements is not known");
            if (*size == data::kForever) throw nb::type_error("the dataset never ends");
            return *size;
          },
          "Number of elements of a pass. TypeError if it is not known or has no end.")
      .def_prop_ro(
          "size",
          [](const DatasetHandle& self) {
            return size_object(unlocked([&] { return self.dataset.size(); }));
          },
          nb::sig("def size(self) -> int | float | None"),
          "Number of elements of a pass: math.inf without an end, None if it is not known.")
      .def_prop_ro(
          "specs",
          [](const DatasetHandle& self) -> nb::object {
            const auto specs = unlocked([&] { return self.dataset.element_specs(); });
            return specs ? to_python(*specs) : nb::none();
          },
          "The specs of an element: a TensorSpec, a tuple or a dict of them; None if they are not "
          "known without an element.")
      .def("__bool__", [](const DatasetHandle&) { return true; })
      .def("__repr__", [](const DatasetHandle& self) {
        const auto specs = unlocked([&] { return self.dataset.element_specs(); });
        return "Dataset[" + (specs ? to_string(*specs) : "specs not known") + "]";
      });
}

void bind_maps(nb::class_<DatasetHandle>& type) {
  type.def(
          "map",
          [](const DatasetHandle& self, const nb::callable& f, std::optional<uint64_t> seed,
             const nb::object& specs) { return map(self, f, seed, specs, std::nullopt); },
          "f"_a, nb::kw_only(), "seed"_a = nb::none(), "specs"_a = nb::none(),
          "Replaces each element e by f(e).\n\n"
          "With a `seed`, by f(e, context), which differs from epoch to epoch: an augmentation. "
          "The result must be a pure function of e and the context (ElementContext), whose random "
          "numbers follow from seed, epoch and index. Put it after cache() and before repeat(). "
          "If `specs` are given, each result must have them.")
      .def(
          "parallel_map",
          [](const DatasetHandle& self, const nb::callable& f, int workers,
             std::optional<uint64_t> seed,
             const nb::object& specs) { return map(self, f, seed, specs, workers); },
          "f"_a, "workers"_a, nb::kw_only(), "seed"_a = nb::none(), "specs"_a = nb::none(),
          "Computes map(f) on `workers` threads, in [0, 256]. Only functions that release the "
          "interpreter's lock, as numpy's and PIL's do, run at the same time.")
      .def(
          "shuffle",
          [](const DatasetHandle& self, uint64_t seed, int64_t buffer) {
            return derived(self, [&](const auto& d) { return d.shuffle(seed, buffer); });
          },
          "seed"_a, "buffer"_a,
          "Holds `buffer` elements, and replaces each drawn element by the next one. The order is "
          "a pure function of seed and pass.")
      .def(
          "repeat",
          [](const DatasetHandle& self, std::optional<int64_t> passes) {
            return derived(
                self, [&](const auto& d) { return d.repeat(passes.value_or(data::kForever)); });
          },
          "passes"_a = nb::none(), "Reads the passes in turn, without end for None.")
      .def(
          "take",
          [](const DatasetHandle& self, int64_t n) {
            return derived(self, [&](const auto& d) { return d.take(n); });
          },
          "n"_a, "Keeps the first `n` elements of a pass.")
      .def(
          "skip",
          [](const DatasetHandle& self, int64_t n) {
            return derived(self, [&](const auto& d) { return d.skip(n); });
          },
          "n"_a, "Skips the first `n` elements of a pass.")
      .def(
          "cache",
          [](const DatasetHandle& self) {
            return derived(self, [&](const auto& d) { return d.cache(); });
          },
          "Stores the elements of the first pass that is read to its end, and reads later passes "
          "from memory.")
      .def(
          "prefetch",
          [](const DatasetHandle& self, int64_t depth) {
            return derived(self, [&](const auto& d) { return d.prefetch(depth); });
          },
          "depth"_a, "Reads up to `depth` elements, in [1, 65536], ahead on a thread.");
}

void bind_selections(nb::class_<DatasetHandle>& type) {
  type.def(
          "split",
          [](const DatasetHandle& self, const std::vector<double>& fractions, uint64_t seed) {
            const auto parts = unlocked([&] { return self.dataset.split(fractions, seed); });
            nb::list handles;
            for (const data::Dataset& part : parts) handles.append(DatasetHandle(part, self.kept));
            return nb::tuple(handles);
          },
          "fractions"_a, "seed"_a,
          "Splits the elements at random into one dataset for each fraction. The sum of the "
          "fractions is 1. The parts are a pure function of the seed and the size. UsageError "
          "unless each element can be made alone and the dataset has an end.")
      .def(
          "weighted",
          [](const DatasetHandle& self, const std::vector<double>& weights, uint64_t seed,
             std::optional<int64_t> n) {
            return derived(self, [&](const auto& d) { return d.weighted(weights, seed, n); });
          },
          "weights"_a, "seed"_a, "n"_a = nb::none(),
          "Draws `n` elements in each pass, or len() of them, with replacement: element k with the "
          "probability weights[k] / sum. Compare torch's WeightedRandomSampler.");
}

void bind_batches(nb::class_<DatasetHandle>& type) {
  type.def(
          "batch",
          [](const DatasetHandle& self, int64_t n, bool drop_remainder) {
            return derived(self,
                           [&](const auto& d) { return d.batch(n, remainder(drop_remainder)); });
          },
          "n"_a, "drop_remainder"_a = true,
          "Joins `n` consecutive elements along a new first axis.")
      .def(
          "pad",
          [](const DatasetHandle& self, int64_t length, const nb::object& fields, int axis) {
            const auto padded = padded_fields(fields, axis);
            return derived(self, [&](const auto& d) { return d.pad(length, padded); });
          },
          "length"_a, "fields"_a, "axis"_a = 0,
          "Pads an axis of fields to `length`. `fields` is a list of names or numbers (new entries "
          "are 0), or a dict of them and the new entries: pad(128, {'tokens': 0, 'labels': -100}).")
      .def(
          "pad_to_multiple",
          [](const DatasetHandle& self, int64_t multiple, const nb::object& fields, int axis) {
            const auto padded = padded_fields(fields, axis);
            return derived(self,
                           [&](const auto& d) { return d.pad_to_multiple(multiple, padded); });
          },
          "multiple"_a, "fields"_a, "axis"_a = 0,
          "Pads an axis of fields to the next multiple; see pad().")
      .def(
          "bucket_by_length",
          [](const DatasetHandle& self, const nb::object& buckets, const nb::object& fields,
             int axis, bool drop_remainder, bool drop_longer) {
            data::BucketOptions options{
                .fields = padded_fields(fields, axis),
                .remainder = remainder(drop_remainder),
                .longer = drop_longer ? data::Longer::kDrop : data::Longer::kRefuse};
            for (const nb::handle bucket : buckets) {
              options.buckets.push_back(
                  {nb::cast<int64_t>(bucket[0]), nb::cast<int64_t>(bucket[1])});
            }
            return derived(self, [&](const auto& d) { return d.bucket_by_length(options); });
          },
          "buckets"_a, "fields"_a, "axis"_a = 0, "drop_remainder"_a = true, "drop_longer"_a = false,
          "Joins elements of similar lengths into batches. `buckets` has pairs of a length and the "
          "elements of a batch: bucket_by_length([(32, 16), (128, 4)], ['tokens']). Compare "
          "tf.data's bucket_by_sequence_length.");
}

/// Returns the datasets of a list, and adds the objects that they keep.
std::vector<data::Dataset> datasets_of(const nb::object& handles, std::vector<nb::object>& kept) {
  std::vector<data::Dataset> datasets;
  for (const nb::handle h : handles) {
    require(nb::isinstance<DatasetHandle>(h), "datasets: must be Dataset, got {}",
            nb::type_name(h.type()).c_str());
    const auto& handle = nb::cast<const DatasetHandle&>(h);
    datasets.push_back(handle.dataset);
    kept.insert(kept.end(), handle.kept.begin(), handle.kept.end());
  }
  return datasets;
}

template <typename F>
DatasetHandle joined(const nb::object& handles, F&& join) {
  std::vector<nb::object> kept;
  const auto datasets = datasets_of(handles, kept);
  return DatasetHandle(unlocked([&] { return join(datasets); }), kept);
}

void bind_mixtures(nb::module_& m) {
  m.def(
      "zip",
      [](const nb::args& datasets) {
        return joined(datasets, [](const auto& all) { return data::zip(all); });
      },
      "datasets"_a,
      "Joins the k-th elements of all datasets into one element, which has the fields of all. Ends "
      "with the shortest dataset.");
  m.def(
      "concat",
      [](const nb::args& datasets) {
        return joined(datasets, [](const auto& all) { return data::concat(all); });
      },
      "datasets"_a, "Reads the datasets one after the other.");
  m.def(
      "interleave",
      [](const nb::args& datasets, int64_t block) {
        return joined(datasets, [&](const auto& all) { return data::interleave(all, block); });
      },
      "datasets"_a, "block"_a = 1,
      "Reads `block` elements of each dataset in turn, until all have ended.");
  m.def(
      "sample_from",
      [](const nb::object& datasets, const std::vector<double>& weights, uint64_t seed) {
        return joined(datasets,
                      [&](const auto& all) { return data::sample_from(all, weights, seed); });
      },
      "datasets"_a, "weights"_a, "seed"_a,
      "Draws the dataset of each element with the probability weights[i] / sum, and reads the next "
      "element of that dataset. It ends when the drawn dataset has ended.");
}

/// Returns the stream of one pass over a Python iterator, which the callback of `state` keeps.
data::Generator generator(const std::shared_ptr<CallbackState>& state, const nb::object& iterator) {
  const auto stream = std::make_shared<PythonStream>(state, iterator);
  return [stream] { return stream->next([](const nb::object& e) { return element_of(e); }); };
}

void bind_sources(nb::module_& m) {
  m.def(
      "from_tensors",
      [](const nb::object& whole) { return DatasetHandle(data::from_tensors(element_of(whole))); },
      "whole"_a,
      "Cuts an array, or a tuple or dict of arrays, along the first axis: element k has row k of "
      "each. The arrays are copied; float64 and int64 become float32 and int32.");
  m.def(
      "from_function",
      [](std::optional<int64_t> n, const nb::callable& f, const nb::object& specs) {
        const nb::object callback = new_callback(f);
        const auto call = [state = state_of(callback)](int64_t k) {
          return call_python(*state, [&](nb::handle f) { return element_of(f(k)); });
        };
        return DatasetHandle(
            data::from_function(n.value_or(data::kForever), call, specs_argument(specs)),
            {callback});
      },
      "n"_a.none(), "f"_a, "specs"_a = nb::none(),
      "Computes element k as f(k), for k in range(n), without end for None. If `specs` are given, "
      "each element must have them.");
  m.def(
      "from_generator",
      [](const nb::callable& make, const nb::object& specs) {
        const nb::object callback = new_callback(make);
        const auto begin = [state = state_of(callback)] {
          return call_python(*state,
                             [&](nb::handle make) { return generator(state, nb::iter(make())); });
        };
        return DatasetHandle(data::from_generator(begin, specs_argument(specs)), {callback});
      },
      "make"_a, "specs"_a = nb::none(),
      "Reads make(), an iterable of elements, in each pass. If `specs` are given, each element "
      "must have them.");
}

nb::str benchmark(const DatasetHandle& self, int64_t epochs, int64_t elements, bool copy) {
  const std::string json = unlocked([&] {
    return data::dataset_benchmark(self.dataset,
                                   {.epochs = epochs, .elements = elements, .copy = copy})
        .to_json();
  });
  return nb::str(json.c_str());
}

}  // namespace

void bind_datasets(nb::module_& m) {
  bind_context(m);
  nb::class_<IteratorHandle>(m, "Iterator", nb::type_slots(keeper_slots<IteratorHandle>),
                             "One pass over a dataset. One thread at a time reads it.")
      .def("__iter__", [](const nb::object& self) { return self; })
      .def("__next__", next_element)
      .def_prop_ro(
          "position",
          [](const IteratorHandle& self) { return self.pass.get("iterator").position(); },
          "Number of elements that were read.");
  nb::class_<DatasetHandle> type(
      m, "Dataset", nb::type_slots(keeper_slots<DatasetHandle>),
      "A lazy pipeline from a source over combinators to elements. An element is an array, a tuple "
      "of arrays, or a dict of arrays. Nothing runs before a pass begins. All elements, in order "
      "and bytes, are a pure function of the sources, the seeds and the number of the pass.");
  bind_reading(type);
  bind_maps(type);
  bind_selections(type);
  bind_batches(type);
  bind_sources(m);
  bind_mixtures(m);
  m.def("dataset_benchmark", benchmark, "dataset"_a, "epochs"_a, "elements"_a, "copy"_a);
}

}  // namespace sluice::python
