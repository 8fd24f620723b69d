#pragma once
/// The parts of the extension module sluice._core. Each function binds the C++ headers that its
/// file names; module.cc calls them in an order in which a type is bound before it is used.
#include <nanobind/nanobind.h>

namespace sluice::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "name"_a

void bind_errors(nb::module_& m);     // base/error.h, exe/budget/does_not_fit.h
void bind_arrays(nb::module_& m);     // base/dtype.h, base/shape.h, base/host_tensor.h
void bind_tensors(nb::module_& m);    // ir/tensor.h, ir/stream.h
void bind_graphs(nb::module_& m);     // ir/graph.h, ir/ir.h
void bind_operators(nb::module_& m);  // ops/op.h, ir/op_def.h
void bind_sessions(nb::module_& m);   // session/session.h, devices/cpu_device.h

}  // namespace sluice::python
