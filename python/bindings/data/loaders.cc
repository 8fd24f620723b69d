#include "sluice/data/loader.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/bindings/data/datasets.h"
#include "python/bindings/data/elements.h"

namespace sluice::python {
namespace {

/// A loader as Python holds it. One thread at a time uses it.
struct LoaderHandle : KeepsObjects {
  Released<data::BatchLoader> loader;
  bool busy = false;    ///< Guarded by the interpreter's lock.
  bool at_end = false;  ///< next() has returned the end of an epoch.

  LoaderHandle(const DatasetHandle& from, const data::LoaderOptions& options)
      : KeepsObjects{from.kept},
        loader(unlocked([&] { return data::BatchLoader(from.dataset, options); })) {}

  data::BatchLoader& get() const { return loader.get("BatchLoader"); }
  /// Returns f(loader), a fact that any thread may read.
  template <typename F>
  auto read(F&& f) const {
    return unlocked([&] { return f(get()); });
  }
  /// Calls f(loader) without the interpreter's lock.
  template <typename F>
  auto use(F&& f) {
    data::BatchLoader& used = get();
    require(!busy, "BatchLoader: one thread at a time must use it, and no function of its dataset");
    const Busy guard(busy);
    return unlocked([&] { return f(used); });
  }

 private:
  struct Busy {
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    ~Busy() { flag_ = false; }
    bool& flag_;
  };
};

nb::object next_item(LoaderHandle& self) {
  std::optional<data::Element> item = self.use([&](data::BatchLoader& loader) {
    if (self.at_end) loader.start_epoch(loader.epoch() + 1);
    const data::Element* const next = loader.next();
    return next == nullptr ? std::nullopt : std::optional(*next);
  });
  self.at_end = !item;
  if (!item) throw nb::stop_iteration();
  return to_python(*std::move(item));
}

nb::object count(std::optional<int64_t> n) {
  if (!n) return nb::none();
  if (*n == data::kForever) return nb::float_(std::numeric_limits<double>::infinity());
  return nb::int_(*n);
}

}  // namespace

void bind_loaders(nb::module_& m) {
  nb::class_<LoaderHandle>(
      m, "BatchLoader", nb::type_slots(keeper_slots<LoaderHandle>),
      "Cuts the elements of a dataset into items: batches with a new first axis. `for` reads the "
      "rest of the present epoch, and the next `for` reads the following epoch. The items are a "
      "pure function of the dataset, the options and the epoch; `workers` and `depth` do not "
      "change "
      "them.")
      .def(
          "__init__",
          [](LoaderHandle* self, const DatasetHandle& dataset, int64_t batch, bool shuffle,
             uint64_t seed, int workers, int depth, bool drop_remainder) {
            const data::LoaderOptions options{
                .batch = batch,
                .shuffle = shuffle ? data::Shuffle::kYes : data::Shuffle::kNo,
                .seed = seed,
                .workers = workers,
                .depth = depth,
                .remainder = drop_remainder ? data::Remainder::kDrop : data::Remainder::kKeep};
            new (self) LoaderHandle(dataset, options);
          },
          "dataset"_a, nb::kw_only(), "batch"_a = 8, "shuffle"_a = true, "seed"_a = 0,
          "workers"_a = 0, "depth"_a = 3, "drop_remainder"_a = true,
          "workers: threads that make items ahead; 0: the consumer's thread alone. depth: items in "
          "memory with workers. drop_remainder: whether the last, smaller item of an epoch is "
          "dropped.")
      .def("__iter__", [](const nb::object& self) { return self; })
      .def("__next__", next_item)
      .def(
          "start_epoch",
          [](LoaderHandle& self, int64_t epoch, int64_t item) {
            self.use([&](data::BatchLoader& loader) { loader.start_epoch(epoch, item); });
            self.at_end = false;
          },
          "epoch"_a, "item"_a = 0, "Starts an epoch at an item.")
      .def_prop_ro(
          "epoch",
          [](const LoaderHandle& self) {
            return self.read([](const auto& l) { return l.epoch(); });
          },
          "Number of the present epoch.")
      .def_prop_ro(
          "position",
          [](const LoaderHandle& self) {
            return self.read([](const auto& l) { return l.position(); });
          },
          "Number of the item that is read next.")
      .def_prop_ro(
          "items",
          [](const LoaderHandle& self) {
            return count(self.read([](const auto& l) { return l.items(); }));
          },
          nb::sig("def items(self) -> int | float | None"),
          "Items of an epoch: math.inf without an end, None if it is not known.")
      .def_prop_ro(
          "dropped",
          [](const LoaderHandle& self) {
            return count(self.read([](const auto& l) { return l.dropped(); }));
          },
          nb::sig("def dropped(self) -> int | float | None"), "Samples that each epoch drops.")
      .def("__len__",
           [](const LoaderHandle& self) {
             const auto items = self.read([](const auto& l) { return l.items(); });
             if (!items || *items == data::kForever)
               throw nb::type_error("the number of items is not known, or has no end");
             return *items;
           })
      .def_prop_ro(
          "specs", [](const LoaderHandle& self) { return to_python(self.get().sample_specs()); },
          "The specs of a sample.");
}

}  // namespace sluice::python
