#pragma once
#include "python/bindings/sessions.h"

namespace sluice::python {

/// The class that Python's Session holds.
using BoundSession = SessionHandle;

/// Adds variables by path, files of them, and reports to the class of sessions.
void bind_session_values(nb::module_& m, nb::class_<BoundSession>& session);

}  // namespace sluice::python
