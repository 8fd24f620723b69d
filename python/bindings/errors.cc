#include <nanobind/stl/string.h>

#include "python/bindings/callbacks.h"
#include "python/bindings/graphs.h"
#include "sluice/base/error.h"
#include "sluice/exe/budget/does_not_fit.h"

/// The library throws one type, Error. Python sees a class for each kind, which is also the builtin
/// class that a Python program expects (sluice/errors.py).
namespace sluice::python {
namespace {

/// Returns the class of a kind in sluice/errors.py.
const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "UsageError";
    case ErrorKind::kBadFile:
      return "BadFileError";
    case ErrorKind::kDoesNotFit:
      return "DoesNotFit";
    case ErrorKind::kIo:
      return "IoError";
    case ErrorKind::kDiverged:
      return "Diverged";
    case ErrorKind::kNoCheckpoint:
      return "NoCheckpoint";
    case ErrorKind::kPeerLost:
      return "PeerLost";
    case ErrorKind::kStopped:
      return "Stopped";
    case ErrorKind::kInternal:
      break;
  }
  return "InternalError";
}

/// Makes the Python exception of an error. A plan that does not fit also has its figures.
nb::object exception_of(const Error& error) {
  const nb::module_ errors = nb::module_::import_("sluice.errors");
  const nb::object made = errors.attr(class_of(error.kind()))(error.what());
  if (const auto* fit = dynamic_cast<const DoesNotFit*>(&error)) {
    made.attr("bytes_needed") = fit->memory().total_bytes;
    made.attr("bytes_available") = fit->memory().budget_bytes;
    made.attr("remedy") = fit->remedy();
  }
  return made;
}

/// Returns the Python exception that an error of the library stems from, or a null object. It may
/// be nested: a run throws an error of its own for that of a feed.
nb::object cause_of(const std::exception& error) {
  if (const auto* raised = dynamic_cast<const CallbackError*>(&error)) return raised->take();
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& nested) {
    return cause_of(nested);
  } catch (...) {
  }
  return {};
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_cast&) {  // A value inside an argument: nb::cast() did not convert it.
    const nb::object type = nb::module_::import_("sluice.errors").attr("ArgumentTypeError");
    PyErr_SetString(type.ptr(),
                    "an argument has a value of a wrong Python type; see the signature");
  } catch (const Error& error) {
    nb::object cause = cause_of(error);
    // KeyboardInterrupt and SystemExit are no errors: they end the program as usual.
    if (cause.is_valid() && PyErr_GivenExceptionMatches(cause.ptr(), PyExc_Exception) == 0)
      return PyErr_SetObject(cause.type().ptr(), cause.ptr());
    const nb::object made = exception_of(error);
    if (cause.is_valid()) PyException_SetCause(made.ptr(), cause.release().ptr());
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

}  // namespace

void refuse_type(const std::string& text) {
  const nb::object type = nb::module_::import_("sluice.errors").attr("ArgumentTypeError");
  PyErr_SetString(type.ptr(), text.c_str());
  throw nb::python_error();
}

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace sluice::python
