#pragma once
#include <nanobind/ndarray.h>

#include <memory>

#include "python/bindings/bindings.h"
#include "sluice/base/host_tensor.h"

namespace sluice::python {

/// An array of the caller, seen without a copy. `owner` keeps its memory.
struct ArgumentArray {
  nb::object owner;
  TensorSpec spec;
  void* data = nullptr;

  ConstArrayView view() const { return {spec, data}; }
};

/// Whether the library only reads an argument or writes it too.
enum class Access { kRead, kWrite };

/// Returns an argument as an array: an object with DLPack or the buffer protocol, in host memory.
/// One that is read is copied if it is not row-major; one that is written must be. `what` begins
/// the text of errors.
ArgumentArray array_argument(nb::handle object, Access access, const std::string& what);

/// Returns a numpy array of the memory at `data`, which `owner` keeps.
nb::object numpy_view(const TensorSpec& spec, void* data, nb::handle owner);
/// Returns a numpy array that owns an array of the library.
nb::object to_numpy(HostTensor array);

/// Returns a value of the host as an array of the library. Python's numbers and lists, and numpy's
/// float64 and int64, become 32-bit if `dtype` is None.
HostTensor host_value(nb::handle data, nb::handle dtype, const std::string& what);

/// Converts a dtype: one of ours, a name, or what numpy.dtype() accepts.
DType dtype_argument(nb::handle object);
Shape shape_argument(nb::handle object);
nb::tuple to_tuple(const Shape& shape);

}  // namespace sluice::python
