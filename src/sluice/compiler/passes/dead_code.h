#pragma once
#include "sluice/compiler/analysis/body_facts.h"

namespace sluice::compiler {

/// Before: any bodies. After: nodes whose outputs nothing needs and that have no effect are gone, and functions do not
/// return results that no caller of theirs reads. Returns the number of nodes removed.
int64_t remove_dead_code(Program& program, const Context& context);

/// Removes the dead nodes of one body; returns the places that the others had.
std::vector<size_t> remove_dead_nodes(Body& body, const FactTable& facts);
/// Which results of a Call its body reads, by used_outputs(); empty: all. The others become kNone.
std::vector<bool> request_results(Node& call, const std::vector<bool>& used);
/// Stops a callee from returning results that no caller reads.
void drop_results(Body& body, const std::vector<bool>& read);

}  // namespace sluice::compiler
