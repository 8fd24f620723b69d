#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// All functions, each after those that it calls; calls must not form a circle (see validate).
std::vector<int32_t> callees_first(const Executable& executable);

}  // namespace sluice::exe
