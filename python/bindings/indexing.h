#pragma once
#include "python/bindings/operands.h"

namespace sluice::python {

/// Returns t[key]. A key is an integer, which drops the axis; a slice; a tuple of both; an integer
/// tensor, array or list, which gathers along axis 0; or a bool tensor or array, which keeps the
/// elements where it is true and zeroes the others. Other keys are an ArgumentTypeError.
Tensor index_tensor(const Tensor& t, nb::handle key);

}  // namespace sluice::python
