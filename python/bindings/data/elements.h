#pragma once
#include <optional>
#include <string>

#include "python/bindings/bindings.h"
#include "sluice/data/dataset.h"

/// Elements of datasets as Python has them: an array, a tuple of arrays, or a dict of arrays.
namespace sluice::python {

/// Returns a copy of an array or a number. Devices have no float64 and no int64: these become
/// float32 and int32, and so do 8-bit and 16-bit integers other than uint8. Error{kUsage} for an
/// integer that int32 cannot store. `what` begins the text of errors.
HostTensor array_of(nb::handle object, const std::string& what);

/// Returns a value of Python as an element: an array or a number; a tuple, or a list of arrays; a
/// dict or a named tuple. A list of numbers is one array.
data::Element element_of(nb::handle value);
/// Returns an element as numpy arrays that own its memory.
nb::object to_python(data::Element element);

/// Converts None, a TensorSpec, a tuple or a dict of them.
std::optional<data::ElementSpecs> specs_argument(nb::handle specs);
nb::object to_python(const data::ElementSpecs& specs);

}  // namespace sluice::python
