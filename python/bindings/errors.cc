#include <nanobind/stl/string.h>

#include "python/bindings/bindings.h"
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

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object made = exception_of(error);
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace sluice::python
