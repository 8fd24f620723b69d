#pragma once
#include <string>

#include "tools/options.h"
#include "tools/programs.h"

namespace sluice::tool {

/// Returns the bytes of the results that a call of the training program returns.
int64_t result_bytes(const Programs& programs);

/// Returns "results of a call: loss (100,), logits (4000, 10): 160400 bytes; --output-mode final:
/// 1604". Empty with one update a call, unless --output-mode changes its results.
std::string results_text(const Programs& programs);

}  // namespace sluice::tool
