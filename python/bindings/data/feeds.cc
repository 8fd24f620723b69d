#include "sluice/data/feed_queues.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "python/bindings/arrays.h"
#include "python/bindings/data/datasets.h"
#include "python/bindings/data/elements.h"
#include "python/bindings/sessions.h"

namespace sluice::python {
namespace {

/// A queue as Python holds it. It keeps the callables of its dataset; the library borrows them.
struct InfeedQueueHandle : KeepsObjects {
  Released<std::shared_ptr<data::InfeedQueue>> queue;

  InfeedQueueHandle(const DatasetHandle& from, int depth)
      : KeepsObjects{from.kept}, queue(unlocked([&] {
          return std::make_shared<data::InfeedQueue>(
              from.dataset, data::InfeedQueueOptions{.prefetch_depth = depth});
        })) {}

  const std::shared_ptr<data::InfeedQueue>& get() const { return queue.get("InfeedQueue"); }
};

/// Calls a Python function with the elements of an outfeed.
class FunctionSink final : public FeedSink {
 public:
  explicit FunctionSink(std::shared_ptr<CallbackState> state) : state_(std::move(state)) {}

  void open(const FeedLayout& layout) override { layout_ = layout; }
  void take(std::span<const ConstArrayView> fields) override {
    data::Element element;
    for (size_t i = 0; i < fields.size(); ++i) {
      HostTensor& copy = element.arrays.emplace_back(fields[i].spec);
      if (!copy.bytes().empty())
        std::memcpy(copy.bytes().data(), fields[i].data, copy.bytes().size());
      element.names.push_back(layout_.fields[i].name);
    }
    call_python(*state_, [&](nb::handle f) { f(to_python(std::move(element))); });
  }

 private:
  std::shared_ptr<CallbackState> state_;
  FeedLayout layout_;
};

nb::dict field_specs(const std::vector<FeedField>& fields) {
  nb::dict specs;
  for (const FeedField& f : fields) specs[f.name.c_str()] = nb::cast(f.spec);
  return specs;
}

nb::object dequeue(data::OutfeedQueue& queue) {
  data::Element fields;
  for (NamedArray& field : unlocked([&] { return queue.dequeue(); })) {
    fields.names.push_back(std::move(field.name));
    fields.arrays.push_back(std::move(field.array));
  }
  return to_python(std::move(fields));
}

/// Waits in parts, so that Ctrl-C ends it.
bool wait_for(data::OutfeedQueue& queue, double seconds) {
  for (double left = seconds; left > 0; left -= 0.1) {
    if (unlocked([&] { return queue.wait_for(std::min(left, 0.1)); })) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return queue.wait_for(0);
}

/// Returns what an infeed reads: a queue, or a new one of whatever data.dataset() accepts.
nb::object source_of(const nb::object& end) {
  if (nb::isinstance<InfeedQueueHandle>(end)) return end;
  const nb::module_ package = nb::module_::import_("sluice.data");
  return package.attr("InfeedQueue")(package.attr("dataset")(end));
}

}  // namespace

void SessionHandle::keep_end(const std::string& feed, nb::object end) {
  const auto found = std::find(feeds_.begin(), feeds_.end(), feed);
  const auto index = static_cast<size_t>(found - feeds_.begin());
  if (found == feeds_.end()) feeds_.push_back(feed);
  if (kept.size() <= index) kept.resize(index + 1);
  const nb::object dropped = std::exchange(kept[index], std::move(end));
}

void bind_feed(SessionHandle& session, const nb::object& feed, const nb::object& end) {
  if (nb::isinstance<Infeed>(feed)) {
    const auto& infeed = nb::cast<const Infeed&>(feed);
    const nb::object source = source_of(end);
    const auto queue = nb::cast<InfeedQueueHandle&>(source).get();
    unlocked([&] { session.bind_feed(infeed, queue); });
    return session.keep_end(infeed.name, source);
  }
  require(nb::isinstance<Outfeed>(feed), "bind_feed: must get an Infeed or an Outfeed, got {}",
          nb::type_name(feed.type()).c_str());
  const auto& outfeed = nb::cast<const Outfeed&>(feed);
  if (nb::isinstance<data::OutfeedQueue>(end)) {
    const auto queue = nb::cast<std::shared_ptr<data::OutfeedQueue>>(end);
    unlocked([&] { session.bind_feed(outfeed, queue); });
    return session.keep_end(outfeed.name, end);
  }
  require(PyCallable_Check(end.ptr()) != 0,
          "bind_feed: outfeed '{}' must get an OutfeedQueue or a function, got {}", outfeed.name,
          nb::type_name(end.type()).c_str());
  const nb::object callback = new_callback(end);
  const auto sink = std::make_shared<FunctionSink>(state_of(callback));
  unlocked([&] { session.bind_feed(outfeed, sink); });
  session.keep_end(outfeed.name, callback);
}

void bind_feeds(nb::module_& m) {
  nb::class_<InfeedQueueHandle>(
      m, "InfeedQueue", nb::type_slots(keeper_slots<InfeedQueueHandle>),
      "A source that feeds the elements of pass 0 of a dataset; repeat() the dataset for more. "
      "Replica r of R reads element t * R + r at step t. One feed at a time may use a queue. It "
      "begins at element 0 each time Session.bind_feed() binds it.")
      .def(nb::init<const DatasetHandle&, int>(), "dataset"_a, "prefetch_depth"_a = 3)
      .def_prop_ro(
          "fields", [](const InfeedQueueHandle& q) { return field_specs(q.get()->fields()); },
          "A dict of the fields' specs. The names of a tuple are '0', '1', ….")
      .def_prop_ro("depth", [](const InfeedQueueHandle& q) { return q.get()->depth(); })
      .def_prop_ro(
          "position", [](const InfeedQueueHandle& q) { return q.get()->position(); },
          "Number of elements that the queue supplied since it was bound.");
  nb::class_<data::OutfeedQueue>(
      m, "OutfeedQueue",
      "A sink that holds the elements of an outfeed. Any thread may dequeue them, also in a run.")
      .def(
          "__init__",
          [](data::OutfeedQueue* self, bool last, int64_t depth) {
            new (self) data::OutfeedQueue(
                {.mode = last ? data::OutfeedQueue::Mode::kLast : data::OutfeedQueue::Mode::kAll,
                 .depth = depth});
          },
          "last"_a = false, "depth"_a = 0,
          "last: dequeue() returns only the newest element. depth: capacity in groups; the device "
          "blocks while the queue is full. 0: no limit.")
      .def("dequeue", dequeue,
           "Returns a dict of the fields. An array has the axes of the elements since the last "
           "call (without it if `last`), of the replicas if there are several, and of an element.")
      .def("wait_for", wait_for, "seconds"_a,
           "Waits until dequeue() can return an element. Returns whether it can.")
      .def("__len__", &data::OutfeedQueue::size, "Number of groups that dequeue() would return.");
}

}  // namespace sluice::python
