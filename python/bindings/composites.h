#pragma once
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/operands.h"

/// Functions of ops/ that have no definition of their own, or whose arguments are not the operands
/// and options of their definition. generate/write_operators.py writes a Python function for each,
/// with the signature and the documentation given here; it passes all arguments by position.
namespace sluice::python {

/// Binds function `f` under the name in `signature`, Python's text without the colon. Ops that it
/// adds have the line of the program.
template <typename R, typename... A>
void bind_function(nb::module_& m, const std::string& signature, const char* doc, R (*f)(A...)) {
  const size_t begin = signature.find(' ') + 1;
  const std::string name = signature.substr(begin, signature.find('(') - begin);
  m.def(
      name.c_str(),
      [f](A... arguments) -> R {
        const AtPythonLine line;
        return f(std::move(arguments)...);
      },
      nb::sig(signature.c_str()), doc, nb::arg().none(std::is_same_v<A, nb::object>)...);
}

/// Returns the integers of an optional argument; none: the empty list.
inline std::vector<int64_t> ints_or_empty(const std::optional<Ints>& given) {
  return given ? given->values : std::vector<int64_t>{};
}
/// Returns the shape that integers are.
inline Shape shape_of(const Ints& dims) { return Shape(dims.values); }

inline std::vector<TensorArg> tensor_args(const std::vector<Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

// Parts of bind_composites().
void bind_shape_functions(nb::module_& m);     // reshape.h, transpose.h, slice.h, concat.h, …
void bind_math_functions(nb::module_& m);      // reductions.h, losses.h, normalization.h, …
void bind_update_functions(nb::module_& m);    // updates.h, sparse_accumulate.h, collectives.h
void bind_sampling_functions(nb::module_& m);  // random.h, resample.h, take_along_axis.h, …

}  // namespace sluice::python
