#include "sluice/ir/tensor.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/indexing.h"
#include "sluice/ir/stream.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"

namespace sluice::python {
namespace {

/// Returns the other operand than `t`. Python tries the other operand's method if it can be none.
Tensor other_operand(const Tensor& t, nb::handle other) {
  if (!nb::isinstance<Tensor>(other) && !is_constant_operand(other)) throw nb::next_overload();
  return operand_like(t, other, "operand");
}

/// Binds a binary operator and its reflected form. An operand may be a number or an array.
template <typename F>
void bind_operator(nb::class_<Tensor>& type, const char* name, const char* reflected, F f) {
  type.def(
      name,
      [f](const Tensor& a, nb::handle b) {
        const AtPythonLine line;
        return f(a, other_operand(a, b));
      },
      nb::is_operator(),
      nb::sig(fmt::format("def {}(self, other: object) -> Tensor", name).c_str()));
  if (reflected == nullptr) return;
  type.def(
      reflected,
      [f](const Tensor& b, nb::handle a) {
        const AtPythonLine line;
        return f(other_operand(b, a), b);
      },
      nb::is_operator(),
      nb::sig(fmt::format("def {}(self, other: object) -> Tensor", reflected).c_str()));
}

/// Binds a method without operands.
template <typename F>
void bind_method(nb::class_<Tensor>& type, const char* name, F f, const char* doc = "") {
  type.def(
      name,
      [f](const Tensor& t) {
        const AtPythonLine line;
        return f(t);
      },
      doc);
}

void bind_arithmetic(nb::class_<Tensor>& type) {
  using T = Tensor;
  bind_operator(type, "__add__", "__radd__", [](const T& a, const T& b) { return ops::add(a, b); });
  bind_operator(type, "__sub__", "__rsub__", [](const T& a, const T& b) { return ops::sub(a, b); });
  bind_operator(type, "__mul__", "__rmul__", [](const T& a, const T& b) { return ops::mul(a, b); });
  bind_operator(type, "__truediv__", "__rtruediv__",
                [](const T& a, const T& b) { return ops::div(a, b); });
  bind_operator(type, "__pow__", "__rpow__", [](const T& a, const T& b) { return ops::pow(a, b); });
  bind_operator(type, "__mod__", "__rmod__",
                [](const T& a, const T& b) { return ops::fmod(a, b); });
  bind_operator(type, "__matmul__", "__rmatmul__",
                [](const T& a, const T& b) { return ops::matmul(a, b); });
  bind_operator(type, "__and__", "__rand__",
                [](const T& a, const T& b) { return ops::logical_and(a, b); });
  bind_operator(type, "__or__", "__ror__",
                [](const T& a, const T& b) { return ops::logical_or(a, b); });
  // In place: every handle to the storage sees the sum.
  bind_operator(type, "__iadd__", nullptr, [](const T& a, const T& b) { return ops::add_(a, b); });
  bind_method(type, "__neg__", [](const T& t) { return ops::neg(t); });
  bind_method(type, "__abs__", [](const T& t) { return ops::abs(t); });
  bind_method(type, "__invert__", [](const T& t) { return ops::logical_not(t); });
}

/// Returns the diagonal of a square matrix.
Tensor diagonal(const Tensor& t) {
  require(t.rank() == 2 && t.shape()[0] == t.shape()[1],
          "diag: must be a square matrix, got shape {}", to_string(t.shape()));
  return ops::slice(ops::flatten(t), {}, {}, {t.shape()[0] + 1});
}

/// Returns the strides of a row-major array of the tensor's shape, or of another.
nb::tuple strides_of(const Tensor& t, const std::optional<Ints>& other) {
  const Shape shape = other ? Shape(other->values) : t.shape();
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()), 1);
  for (size_t i = strides.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[static_cast<int>(i)];
  nb::list list;
  for (const int64_t stride : strides) list.append(stride);
  return nb::tuple(list);
}

using Permutation = std::optional<Ints>;

void bind_views(nb::class_<Tensor>& type) {
  bind_method(
      type, "flatten", [](const Tensor& t) { return ops::flatten(t); },
      "Reshapes the tensor to one dimension.");
  bind_method(
      type, "flatten_", [](const Tensor& t) { return ops::flatten_(t); },
      "flatten as another handle to the same storage.");
  bind_method(
      type, "detach", [](const Tensor& t) { return ops::detach(t); },
      "Returns the value and blocks gradients.");
  bind_method(
      type, "detach_", [](const Tensor& t) { return ops::detach_(t); },
      "Returns another handle to the storage and blocks gradients.");
  bind_method(type, "diag", diagonal, "Returns the diagonal of a square matrix.");
  type.def(
          "reshape",
          [](const Tensor& t, const Ints& shape) {
            const AtPythonLine line;
            return ops::reshape(t, Shape(shape.values));
          },
          "shape"_a, "Returns the elements under another shape; one dimension may be -1.")
      .def(
          "reshape_",
          [](const Tensor& t, const Ints& shape) {
            const AtPythonLine line;
            return ops::reshape_(t, Shape(shape.values));
          },
          "shape"_a, "reshape as another handle to the same storage.")
      .def(
          "transpose",
          [](const Tensor& t, const Permutation& permutation) {
            const AtPythonLine line;
            return permutation ? ops::transpose(t, permutation->values) : ops::transpose(t);
          },
          "permutation"_a = nb::none(), "Permutes the axes; reverses them without a permutation.")
      .def(
          "transpose_",
          [](const Tensor& t, const Permutation& permutation) {
            const AtPythonLine line;
            return permutation ? ops::transpose_(t, permutation->values) : ops::transpose_(t);
          },
          "permutation"_a = nb::none(), "transpose as a view.")
      .def_prop_ro(
          "T",
          [](const Tensor& t) {
            const AtPythonLine line;
            return ops::transpose(t);
          },
          "The tensor with its axes reversed.")
      .def_prop_ro(
          "T_",
          [](const Tensor& t) {
            const AtPythonLine line;
            return ops::transpose_(t);
          },
          "The tensor with its axes reversed, as a view.")
      .def("strides", strides_of, "shape"_a = nb::none(),
           "Strides in elements of a row-major array of this shape.")
      .def(
          "__getitem__",
          [](const Tensor& t, nb::handle key) {
            const AtPythonLine line;
            return index_tensor(t, key);
          },
          "key"_a.none(),
          "An integer drops an axis; a slice or a tuple selects a part. Integers in a tensor, an "
          "array or a list gather along axis 0. A bool tensor or array keeps the elements where it "
          "is true and zeroes the others.")
      .def("__len__", [](const Tensor& t) {
        require(t.rank() > 0, "len: a scalar has no length");
        return t.shape()[0];
      });
}

template <typename S>
void bind_stream(nb::module_& m, const char* name, const char* doc) {
  nb::class_<S>(m, name, doc)
      .def_ro("name", &S::name)
      .def_ro("spec", &S::spec)
      .def_prop_ro("dtype", [](const S& s) { return s.spec.dtype; })
      .def_prop_ro("shape", [](const S& s) { return to_tuple(s.spec.shape); })
      .def(
          "__eq__", [](const S& a, const S& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const S& s) { return std::hash<S>()(s); })
      .def("__repr__", [name](const S& s) {
        return fmt::format("{}[{} {}]", name, s.name, to_string(s.spec));
      });
}

}  // namespace

void bind_tensors(nb::module_& m) {
  bind_stream<H2dStream>(m, "H2dStream", "Stream from the host: an input of the program.");
  bind_stream<D2hStream>(m, "D2hStream", "Stream to the host: an output of the program.");
  nb::class_<Tensor> type(
      m, "Tensor",
      "A handle to a tensor of a graph. It names storage: if an updating op writes the tensor, all "
      "handles to it see the new value. Handles compare and hash by identity. A handle does not "
      "keep its Ir: its use after the Ir is gone is a UsageError.");
  type.def_prop_ro("name", [](const Tensor& t) { return t.name(); })
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("shape", [](const Tensor& t) { return to_tuple(t.shape()); })
      .def_prop_ro(
          "meta_shape", [](const Tensor& t) { return to_tuple(t.meta_shape()); },
          "Shape of the whole tensor if this is a shard; () otherwise.")
      .def_prop_ro("spec", &Tensor::spec, nb::rv_policy::copy)
      .def_prop_ro("rank", &Tensor::rank)
      .def_prop_ro("nelms", &Tensor::elements, "Number of elements.")
      .def_prop_ro("graph", [](const Tensor& t) { return GraphHandle(t.graph()); })
      .def_prop_ro("ir", [](const Tensor& t) { return t.graph().ir(); })
      .def(
          "__eq__", [](const Tensor& a, const Tensor& b) { return a == b; }, nb::is_operator())
      .def("__hash__", &Tensor::hash)
      .def("__repr__", [](const Tensor& t) { return to_string(t); });
  // numpy leaves `array + tensor` to the tensor; a tensor has no elements to iterate over.
  type.attr("__array_ufunc__") = nb::none();
  type.attr("__iter__") = nb::none();
  type.attr("__contains__") = nb::none();
  bind_arithmetic(type);
  bind_views(type);
}

}  // namespace sluice::python
