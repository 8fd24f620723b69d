#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/ir/op_def.h"

/// Elementwise operators on int32, uint32 and uint8: ops/integer_functors.h, `where`, and casts
/// between them and to bool.
namespace sluice::cpu {

/// Computes to[i] = f(inputs[0][i], …) for i < n. An input is an array if its step is 1, or one
/// value if it is 0. `to` may be exactly the same array as an input.
using IntegerMap = void (*)(const std::byte* const* inputs, const int64_t* steps, std::byte* to,
                            int64_t n);

/// Returns the map of an elementwise op; null if the op does not run on integers.
IntegerMap integer_map(const OpView& op);

}  // namespace sluice::cpu
