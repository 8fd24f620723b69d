#pragma once
#include "sluice/compiler/analysis/body_facts.h"

namespace sluice::compiler {

/// Before: any bodies. After: nodes without effect whose outputs nothing needs are removed.
/// Functions do not return results that no caller reads. Returns the number of nodes removed.
int64_t remove_dead_code(Program& program, const Context& context);

/// Removes the dead nodes of one body. Returns the former indices of the remaining nodes.
Ids<NodeId, NodeId> remove_dead_nodes(Body& body, const FactTable& facts);
/// Sets the results of a Call that its body does not read to kNone. `used`: used_outputs() of the
/// call. Returns whether each result is read; empty if all are.
std::vector<bool> request_results(Node& call, const std::vector<bool>& used);
/// Stops a body from returning results that no caller reads. `read`: as request_results() returns
/// it.
void drop_results(Body& body, const std::vector<bool>& read);

}  // namespace sluice::compiler
