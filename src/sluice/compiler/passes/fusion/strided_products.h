#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Lets matrix products read transposed, sliced and split operands in place, and write transposed
/// results: an operand that only products read is an address expression of their packing, and moves
/// nothing. A product of matrices whose operands are transposed over their last two axes stays a
/// MatMul, with its flags; other batched products become a StridedMatMul if the target has a kernel
/// for it. Returns the number of products changed.
int64_t strided_products(Body& body, const Target& target);

}  // namespace sluice::compiler
