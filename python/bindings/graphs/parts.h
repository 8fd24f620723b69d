#pragma once
#include "python/bindings/graphs.h"

/// The parts of bind_graphs(), in an order in which a type is bound before it is used.
namespace sluice::python {

void bind_variables(nb::module_& m);        // ir/initializer.h
void bind_transfers(nb::module_& m);        // ir/stream.h: remote buffers, feeds
void bind_ir(nb::module_& m);               // ir/ir.h, ir/replica_grouping.h
void bind_calls(nb::module_& m);            // ir/call.h
void bind_scopes(nb::module_& m);           // ir/graph.h: scopes
void bind_transforms(nb::module_& m);       // transforms/*.h
void bind_batch_serialise(nb::module_& m);  // transforms/batch_serialise.h

// Methods of a class whose headers several files bind.
void bind_variable_methods(nb::class_<GraphHandle>& graph);  // ir/variable.h
void bind_call_methods(nb::class_<GraphHandle>& graph);      // ir/call.h, transforms/loops/loops.h
void bind_transfer_methods(nb::class_<GraphHandle>& graph);  // ir/graph.h: streams, buffers, feeds
void bind_feeds_of(nb::class_<Ir>& ir);

}  // namespace sluice::python
