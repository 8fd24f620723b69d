#pragma once
#include "sluice/compiler/body.h"
#include "sluice/compiler/graph_facts.h"

namespace sluice::compiler {

/// Before: any body. After: nodes whose outputs nobody needs and that have no effect are gone. Returns how many went.
int64_t remove_dead_code(Body& body, const FactTable& facts);

/// For each node, which of its outputs anything reads (results of calls that nobody needs are not computed).
std::vector<std::vector<bool>> used_outputs(const Body& body);

}  // namespace sluice::compiler
