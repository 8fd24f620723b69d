#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Sets the `sync` flags of a function: a step gets one if it touches bytes that a step since the last one wrote (or
/// writes bytes that one touched), unless both are single tasks, which worker 0 runs in order. What callers and callees
/// did is unknown, so the first step of a function and the first after a call have one. Returns how many were set.
int64_t synchronise(exe::Function& function);

}  // namespace sluice::compiler
