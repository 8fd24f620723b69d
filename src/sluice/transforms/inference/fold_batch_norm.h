#pragma once
#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// Folds each batch_norm_inference into the convolution before it. For programs that apply a
/// trained network, such as the entry "eval".
///
/// Before: any graph that passes verify(). A batch norm is folded if its input is the result of a
/// conv, or the sum of one and a value for each channel, if nothing else reads that result, and if
/// the graph does not overwrite an operand of the conv or of the batch norm.
/// After: conv(x, w·scale) + shift in its place, with scale = weight / √(variance + epsilon) and
/// shift = (bias of the conv - mean)·scale + bias. The values agree to rounding, not to the bit.
/// Handles stay valid, except those of the results that were folded.
///
/// Each run computes w·scale from the present variables. So a network may be trained between two
/// runs, and folding pays where a conv has many positions for each of its weights.
/// Returns the number of batch norms that it folded.
int fold_batch_norm(Graph& graph);

}  // namespace sluice::transforms
