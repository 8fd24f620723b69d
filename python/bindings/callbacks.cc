#include "python/bindings/callbacks.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace sluice::python {
namespace {

std::atomic<int> calls_in_progress{0};
std::atomic<bool> exiting{false};

/// Waits until no thread of the library calls Python, and refuses later calls. A thread that asked
/// for the lock after the end of the interpreter would be ended in the middle of its call.
void end_calls() {
  exiting = true;
  while (calls_in_progress > 0) {
    {
      const nb::gil_scoped_release release;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

/// A child of fork() has only the thread that called fork().
void begin_child() { calls_in_progress = 0; }

bool is_ours(nb::handle exception) {
  return nb::isinstance(exception, nb::module_::import_("sluice.errors").attr("Error"));
}

/// Returns the kind of an exception: that of a sluice.Error, and otherwise kUsage.
ErrorKind kind_of(nb::handle exception) {
  if (!is_ours(exception)) return ErrorKind::kUsage;
  return static_cast<ErrorKind>(nb::cast<int>(exception.attr("exit_code")));
}

/// Returns "ValueError: the text", or the text alone for a sluice.Error.
std::string text_of(nb::handle exception) {
  const auto text = nb::cast<std::string>(nb::str(exception));
  if (is_ours(exception)) return text;
  const auto name = nb::cast<std::string>(nb::type_name(exception.type()));
  return text.empty() ? name : name + ": " + text;
}

/// The Python object that owns a callable. Its finalizer is called before the garbage collector
/// clears any object of a cycle: from then on, no thread of the library calls one of them.
struct Callback {
  std::shared_ptr<CallbackState> state = std::make_shared<CallbackState>();
  nb::object callable;

  Callback() = default;
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  ~Callback() { clear(); }

  void clear() {
    state->callable = nb::handle();
    const auto streams = std::exchange(state->streams, {});
    callable.reset();
  }
};

int visit_callback(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* const callback = nb::inst_ptr<Callback>(self);
  Py_VISIT(callback->callable.ptr());
  for (const nb::object& stream : callback->state->streams) Py_VISIT(stream.ptr());
  return 0;
}
int clear_callback(PyObject* self) {
  nb::inst_ptr<Callback>(self)->clear();
  return 0;
}
void finalize_callback(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Callback>(self)->state->callable = nb::handle();
}
PyType_Slot callback_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_callback)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_callback)},
                                {Py_tp_finalize, reinterpret_cast<void*>(finalize_callback)},
                                {0, nullptr}};

}  // namespace

PythonCall::Entry::Entry() {
  ++calls_in_progress;
  if (!exiting) return;
  --calls_in_progress;
  fail(ErrorKind::kStopped, "Python is exiting: its functions are not called any more");
}
PythonCall::Entry::~Entry() { --calls_in_progress; }

struct CallbackError::Original {
  nb::object exception;

  ~Original() {
    if (!exception.is_valid()) return;
    try {
      const PythonCall call;
      exception.reset();
    } catch (const Error&) {  // Python is exiting: the system frees the object.
      exception.release();
    }
  }
};

CallbackError::CallbackError(const nb::python_error& error)
    : Error(kind_of(error.value()), text_of(error.value())),
      original_(std::make_shared<Original>()) {
  original_->exception = nb::borrow(error.value());
  // Before Python 3.12, the traceback is not yet part of the exception.
  const nb::object traceback = error.traceback();
  if (traceback.is_valid()) PyException_SetTraceback(error.value().ptr(), traceback.ptr());
}

nb::object CallbackError::take() const { return std::move(original_->exception); }

nb::handle CallbackState::checked() const {
  require(callable.is_valid(), "a Python function must not be called after it was freed");
  return callable;
}

nb::object new_callback(nb::object callable) {
  auto made = std::make_unique<Callback>();
  made->callable = std::move(callable);
  made->state->callable = made->callable;
  return nb::cast(made.release(), nb::rv_policy::take_ownership);
}

std::shared_ptr<CallbackState> state_of(const nb::object& callback) {
  return nb::cast<Callback&>(callback).state;
}

PythonStream::PythonStream(std::shared_ptr<CallbackState> state, const nb::object& iterator)
    : state_(std::move(state)), iterator_(iterator) {
  state_->streams.push_back(iterator);
}

PythonStream::~PythonStream() {
  try {
    const PythonCall call;
    const auto found = std::find_if(state_->streams.begin(), state_->streams.end(),
                                    [&](const nb::object& s) { return s.is(iterator_); });
    if (found == state_->streams.end()) return;
    const nb::object dropped = std::move(*found);
    state_->streams.erase(found);
  } catch (const Error&) {  // Python is exiting: it frees the iterator.
  }
}

void bind_callbacks(nb::module_& m) {
  nb::class_<Callback>(m, "_Callback", nb::type_slots(callback_slots),
                       "A Python callable that the library calls.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end_calls));
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function(begin_child));
}

}  // namespace sluice::python
