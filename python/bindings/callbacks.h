#pragma once
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "python/bindings/bindings.h"
#include "sluice/base/error.h"

/// Calls of Python from the library: locks, ownership, exceptions.
///
/// Python owns a callable, and the library borrows it. A `Callback` is a Python object that has the
/// callable. Datasets, models and sessions keep it (KeepsObjects), so that the garbage collector
/// finds cycles through it. Functions in the library share its CallbackState. The state is empty
/// once the Callback is freed, or is garbage that is about to be freed.
namespace sluice::python {

/// Holds the interpreter's lock during a call from the library, on any thread. Error{kStopped} if
/// Python is about to exit: its threads must not ask for the lock any more.
class PythonCall {
 public:
  PythonCall() = default;

 private:
  class Entry {
   public:
    Entry();
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
  };
  Entry entry_;
  nb::gil_scoped_acquire lock_;
};

/// The exception of a callable, as an Error that passes through the library. Its kind is that of a
/// sluice.Error, and otherwise kUsage. errors.cc makes it the cause of the exception that Python
/// sees.
class CallbackError : public Error {
 public:
  /// Requires the interpreter's lock.
  explicit CallbackError(const nb::python_error& error);
  /// Returns the exception at the first call, and nothing later: copies of an Error that stay in
  /// the library then keep no Python object. Requires the interpreter's lock.
  nb::object take() const;

 private:
  struct Original;
  std::shared_ptr<Original> original_;
};

/// The borrowed objects of a callback. The interpreter's lock guards them.
struct CallbackState {
  nb::handle callable;              ///< Null once Python has freed the callable.
  std::vector<nb::object> streams;  ///< Iterators of passes in progress.

  /// Error{kUsage} if the callable is gone.
  nb::handle checked() const;
};

/// Calls f(callable) with the interpreter's lock. The result must not be a Python object. An
/// exception of Python becomes CallbackError.
template <typename F>
auto call_python(const CallbackState& state, F&& f) {
  const PythonCall call;
  try {
    const nb::object callable = nb::borrow(state.checked());
    return f(callable);
  } catch (const nb::python_error& error) {
    throw CallbackError(error);
  }
}

/// Returns a new Callback for a callable, and its state for functions of the library.
nb::object new_callback(nb::object callable);
std::shared_ptr<CallbackState> state_of(const nb::object& callback);

/// An iterator of Python that the library reads. The Callback that made it owns it, until the
/// library has ended the pass.
class PythonStream {
 public:
  PythonStream(std::shared_ptr<CallbackState> state, const nb::object& iterator);
  ~PythonStream();
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;

  /// Returns f(next element), or nothing at the end.
  template <typename F>
  auto next(F&& f) -> std::optional<decltype(f(nb::object()))> {
    return call_python(*state_, [&](nb::handle) -> std::optional<decltype(f(nb::object()))> {
      const nb::object held = nb::borrow(iterator_);
      const nb::object element = nb::steal(PyIter_Next(held.ptr()));
      if (!element.is_valid()) {
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
        return std::nullopt;
      }
      return f(element);
    });
  }

 private:
  std::shared_ptr<CallbackState> state_;
  nb::handle iterator_;
};

/// The Python objects that a bound object keeps: callbacks, and objects that the library borrows.
struct KeepsObjects {
  std::vector<nb::object> kept = {};

  void keep(const std::vector<nb::object>& more) {
    kept.insert(kept.end(), more.begin(), more.end());
  }
};

/// Lets the garbage collector find cycles through the objects that a T keeps:
///   nb::class_<T>(m, "T", nb::type_slots(keeper_slots<T>))
template <typename T>
int visit_kept(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object& object : nb::inst_ptr<T>(self)->kept) Py_VISIT(object.ptr());
  return 0;
}
template <typename T>
int clear_kept(PyObject* self) {
  const auto dropped = std::exchange(nb::inst_ptr<T>(self)->kept, {});
  return 0;
}
template <typename T>
inline PyType_Slot keeper_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_kept<T>)},
                                     {Py_tp_clear, reinterpret_cast<void*>(clear_kept<T>)},
                                     {0, nullptr}};

/// Calls f() without the interpreter's lock. Functions that may run or wait for callbacks need it.
template <typename F>
auto unlocked(F&& f) {
  const nb::gil_scoped_release release;
  return f();
}

/// A base that precedes another one whose destructor waits for threads. The derived destructor
/// calls release(). The interpreter's lock is then free until the other base is destroyed.
class ReleasesLock {
 protected:
  void release() { released_.emplace(); }

 private:
  std::optional<nb::gil_scoped_release> released_;
};

/// A T whose destructor waits for threads that may call Python: it runs without the interpreter's
/// lock. A child process of fork() has none of these threads. There a T is not destroyed, and its
/// use is Error{kUsage}.
template <typename T>
class Released {
 public:
  explicit Released(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Released(Released&&) noexcept = default;
  ~Released() {
    if (value_ == nullptr) return;
    if (getpid() != process_) {
      static_cast<void>(value_.release());
      return;
    }
    const nb::gil_scoped_release release;
    value_.reset();
  }

  /// `what` begins the error of a child process.
  T& get(const char* what) const {
    require(getpid() == process_,
            "{}: must be used by the process that made it ({}), got process {}; make it after "
            "fork()",
            what, process_, getpid());
    return *value_;
  }

 private:
  pid_t process_ = getpid();
  std::unique_ptr<T> value_;
};

}  // namespace sluice::python
