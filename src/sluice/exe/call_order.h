#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Returns all functions, each after its callees. No function may call itself, directly or through
/// others (see validate).
std::vector<int32_t> callees_first(const Executable& executable);

}  // namespace sluice::exe
