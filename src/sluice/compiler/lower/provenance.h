#pragma once
#include <cstdint>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/compiler/lower/tables.h"
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Whether a node has a provenance of its own. Other nodes have a value's (carry_provenances()).
bool has_provenance(const Node& node);

/// Returns the provenance of a node, one for each stage of a fused kernel.
std::vector<SharedProvenance> provenances_of(const Node& node);

/// Returns the row of each value's maker in the table of provenances; -1 if it has none.
Ids<ValueIndex, int32_t> provenances_of(const Body& body, Tables& tables);

/// Returns the value that a block of a body's storage holds first. Its tenants have another order.
ValueIndex first_held(const Storage& storage, const Block& block);

/// Assigns values without a provenance that of the value that they are made of: copies, received
/// messages, results of calls, and parameters, which have that of their first argument. Assigns
/// steps without a provenance that of the value that they copy, send, receive, store or wait for.
void carry_provenances(exe::Executable& executable);

}  // namespace sluice::compiler
