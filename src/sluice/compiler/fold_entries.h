#pragma once
#include "sluice/compiler/graph_facts.h"
#include "sluice/compiler/indices.h"

namespace sluice::compiler {

/// Entries and arguments that are index expressions no longer are operands; counters are not carried, but made where
/// kernels read them. What nobody reads any more is not computed. Returns how many entries became expressions.
int64_t fold_entries(Body& body, const Globals& globals, const FactTable& facts,
                     const IndexTable& table);

/// Numbers the index parameters that the body uses from 0; index_inputs says which they were.
void number_index_params(Body& body);

}  // namespace sluice::compiler
