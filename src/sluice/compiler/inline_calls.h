#pragma once
#include <functional>

#include "sluice/compiler/body.h"
#include "sluice/compiler/graph_facts.h"

namespace sluice::compiler {

/// Before: calls of graphs that only one call site names. After: their nodes stand in place of the call; a graph
/// called from several places stays a function. `body_of` gives the callee's body. Returns how many calls went.
int64_t inline_calls(Body& body, const FactTable& facts,
                     const std::function<Body(GraphId)>& body_of);

}  // namespace sluice::compiler
