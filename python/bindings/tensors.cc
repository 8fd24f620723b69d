#include "sluice/ir/tensor.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs.h"
#include "sluice/ir/stream.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"

namespace sluice::python {
namespace {

/// Binds a binary operator and its reflected form. An operand may be a number. Python tries the
/// other operand's method if neither signature matches.
template <typename F>
void bind_operator(nb::class_<Tensor>& type, const char* name, const char* reflected, F f) {
  const auto at_line = [f](const Tensor& graph_of, const auto& a, const auto& b) {
    const AtPythonLine line(graph_of.graph());
    return f(a, b);
  };
  type.def(
      name,
      [=](const Tensor& a, const Tensor& b) { return at_line(a, TensorArg(a), TensorArg(b)); },
      nb::is_operator());
  type.def(
      name, [=](const Tensor& a, double b) { return at_line(a, TensorArg(a), b); },
      nb::is_operator());
  if (reflected == nullptr) return;
  type.def(
      reflected, [=](const Tensor& b, double a) { return at_line(b, a, TensorArg(b)); },
      nb::is_operator());
}

void bind_arithmetic(nb::class_<Tensor>& type) {
  bind_operator(type, "__add__", "__radd__",
                [](const auto& a, const auto& b) { return ops::add(a, b); });
  bind_operator(type, "__sub__", "__rsub__",
                [](const auto& a, const auto& b) { return ops::sub(a, b); });
  bind_operator(type, "__mul__", "__rmul__",
                [](const auto& a, const auto& b) { return ops::mul(a, b); });
  bind_operator(type, "__truediv__", "__rtruediv__",
                [](const auto& a, const auto& b) { return ops::div(a, b); });
  bind_operator(type, "__pow__", "__rpow__",
                [](const auto& a, const auto& b) { return ops::pow(a, b); });
  // In place: every handle to the storage sees the sum.
  type.def(
      "__iadd__",
      [](const Tensor& a, const Tensor& b) {
        const AtPythonLine line(a.graph());
        return ops::add_(a, b);
      },
      nb::is_operator());
  type.def(
      "__matmul__",
      [](const Tensor& a, const Tensor& b) {
        const AtPythonLine line(a.graph());
        return ops::matmul(a, b);
      },
      nb::is_operator());
  type.def("__neg__", [](const Tensor& a) {
    const AtPythonLine line(a.graph());
    return ops::neg(a);
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
      .def(
          "__eq__", [](const Tensor& a, const Tensor& b) { return a == b; }, nb::is_operator())
      .def("__hash__", &Tensor::hash)
      .def("__repr__", [](const Tensor& t) { return to_string(t); });
  // numpy leaves `array + tensor` to the tensor; a tensor has no elements to iterate over.
  type.attr("__array_ufunc__") = nb::none();
  type.attr("__iter__") = nb::none();
  bind_arithmetic(type);
}

}  // namespace sluice::python
