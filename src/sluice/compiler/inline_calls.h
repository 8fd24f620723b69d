#pragma once
#include <functional>

#include "sluice/compiler/body.h"
#include "sluice/compiler/graph_facts.h"

namespace sluice::compiler {

/// Before: calls of graphs. After: where only one call site names the graph, or it is a few kernels (an optimizer's step
/// for one variable), its nodes stand in place of the call; other graphs called from several places stay functions. `body_of` gives the callee's body. Returns how many calls went.
int64_t inline_calls(Body& body, const FactTable& facts,
                     const std::function<const Body&(GraphId)>& body_of);

}  // namespace sluice::compiler
