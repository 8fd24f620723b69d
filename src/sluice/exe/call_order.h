#pragma once
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Returns all functions, each after its callees. No function may call itself, directly or through
/// others (see validate).
std::vector<FunctionId> callees_first(const Executable& executable);

}  // namespace sluice::exe
