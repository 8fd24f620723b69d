#pragma once
/// The parts of the extension module sluice._core. Each function binds the C++ headers that its
/// file names; module.cc calls them in an order in which a type is bound before it is used.
#include <nanobind/nanobind.h>

namespace sluice::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "name"_a

void bind_errors(nb::module_& m);      // base/error.h, exe/budget/does_not_fit.h
void bind_callbacks(nb::module_& m);   // std::function of a Python callable
void bind_arrays(nb::module_& m);      // base/dtype.h, base/shape.h, base/host_tensor.h
void bind_tensors(nb::module_& m);     // ir/tensor.h, ir/stream.h
void bind_graphs(nb::module_& m);      // ir/graph.h, ir/ir.h
void bind_operators(nb::module_& m);   // ops/op.h, ir/op_def.h
void bind_composites(nb::module_& m);  // ops/*.h: functions without a definition
void bind_sessions(nb::module_& m);    // session/session.h, devices/cpu_device.h
void bind_datasets(nb::module_& m);    // data/dataset.h
void bind_files(nb::module_& m);       // data/dataset.h: sources that read files, data/samples.h
void bind_tokens(nb::module_& m);      // data/text/tokens.h
void bind_loaders(nb::module_& m);     // data/loader.h
void bind_feeds(nb::module_& m);       // data/feed_queues.h, base/feed.h

}  // namespace sluice::python
