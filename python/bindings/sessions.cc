#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs.h"
#include "python/bindings/interrupts.h"
#include "python/bindings/options.h"
#include "python/bindings/session_values.h"
#include "python/bindings/sessions.h"
#include "sluice/session/option_table.h"

namespace sluice::python {
namespace {

using Session = SessionHandle;

/// The arrays of a run, and the Python objects that keep their memory.
struct RunInputs {
  std::vector<StreamInput> inputs;
  std::vector<nb::object> owners;

  explicit RunInputs(const nb::dict& arrays) {
    for (const auto [key, value] : arrays) {
      const auto& stream = nb::cast<const H2dStream&>(key);
      ArgumentArray array = array_argument(value, Access::kRead, "stream '" + stream.name + "'");
      inputs.push_back({stream, array.view()});
      owners.push_back(std::move(array.owner));
    }
  }
};

/// Runs on new output arrays, which Python owns without a copy.
nb::dict run(Session& session, const nb::dict& arrays, const std::string& program) {
  const RunInputs given(arrays);
  auto results = std::make_unique<HostTensors>();
  run_interruptibly(session, [&] { *results = session.run(given.inputs, program); });
  HostTensors* const kept = results.release();
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<HostTensors*>(p); });
  nb::dict outputs;
  for (const auto& [stream, array] : *kept) {
    outputs[nb::cast(stream)] =
        numpy_view(array.spec(), const_cast<std::byte*>(array.bytes().data()), owner);
  }
  return outputs;
}

/// A program bound to arrays of the caller, which it keeps.
struct BoundRun {
  Session* session = nullptr;
  nb::object session_owner;
  std::vector<nb::object> owners;
  Binding binding;

  void operator()() {
    require(session != nullptr, "binding: must not be called while it is freed");
    run_interruptibly(*session, [this] { session->run_into(binding); });
  }
};

/// The garbage collector finds cycles through the arrays and the session of a binding.
int visit_binding(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* const bound = nb::inst_ptr<BoundRun>(self);
  Py_VISIT(bound->session_owner.ptr());
  for (const nb::object& owner : bound->owners) Py_VISIT(owner.ptr());
  return 0;
}
int clear_binding(PyObject* self) {
  auto* const bound = nb::inst_ptr<BoundRun>(self);
  bound->binding = Binding();
  bound->session = nullptr;
  bound->session_owner.reset();
  bound->owners.clear();
  return 0;
}
PyType_Slot binding_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_binding)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_binding)},
                               {0, nullptr}};

std::unique_ptr<BoundRun> bind_run(const nb::object& self, const nb::dict& inputs,
                                   const nb::dict& outputs, const std::string& program) {
  auto& session = nb::cast<Session&>(self);
  RunInputs given(inputs);
  std::vector<StreamOutput> written;
  for (const auto [key, value] : outputs) {
    const auto& stream = nb::cast<const D2hStream&>(key);
    ArgumentArray array = array_argument(value, Access::kWrite, "stream '" + stream.name + "'");
    written.push_back({stream, ArrayView(array.spec, array.data)});
    given.owners.push_back(std::move(array.owner));
  }
  auto bound = std::make_unique<BoundRun>();
  bound->binding = session.bind(given.inputs, written, program);
  bound->session = &session;
  bound->session_owner = self;
  bound->owners = std::move(given.owners);
  return bound;
}

}  // namespace

void bind_sessions(nb::module_& m) {
  nb::class_<BoundRun>(m, "Binding", nb::type_slots(binding_slots),
                       "A program bound to arrays. A call runs it on them.")
      .def("__call__", &BoundRun::operator());
  // Both live as long as the module, which refers to them.
  static const std::string signature =
      "def __init__(self, ir: Ir, *, " + keyword_signature(session_table()) + ") -> None";
  static const std::string doc =
      "Compiles the program, proves the plan, allocates its memory and initialises the variables.\n"
      "DoesNotFit if a budget cannot be met.\n" +
      keyword_docs(session_table());
  nb::class_<Session> session(m, "Session", nb::type_slots(keeper_slots<Session>),
                              "A compiled program with its memory. It compiles, proves the plan, "
                              "allocates, and holds the variables from run to run.");
  session
      .def(
          "__init__",
          [](Session* self, const Ir& ir, const nb::kwargs& keywords) {
            SessionOptions options;
            set_options("Session", session_table(), options, keywords);
            const nb::gil_scoped_release release;
            new (self) Session(ir, options);
          },
          nb::sig(signature.c_str()), doc.c_str())
      .def("run", run, "inputs"_a = nb::dict(), "program"_a = "main",
           "Runs a program once on arrays by stream; returns new arrays by stream. The run reads "
           "row-major arrays of the stream's dtype where they are, and copies others.")
      .def("bind", bind_run, "inputs"_a = nb::dict(), "outputs"_a = nb::dict(),
           "program"_a = "main",
           "Checks arrays as run() does. A call of the result runs the program on them and "
           "allocates nothing.")
      .def("bind_feed", bind_feed, "feed"_a, "end"_a,
           "Binds an infeed to its source, or an outfeed to its sink, which the session keeps. A "
           "feed starts with element 0, also if it was bound before.\n\n"
           "Source: an InfeedQueue, or whatever data.dataset() accepts. Sink: an OutfeedQueue, or "
           "a function of a dict of arrays.")
      .def("stop", &Session::stop, "Ends the run in progress; any thread may call it.");
  bind_session_values(m, session);
}

}  // namespace sluice::python
