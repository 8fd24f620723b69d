#pragma once
#include <string_view>

#include "sluice/nn/layers.h"

/// Checks and rules that layers share.
namespace sluice::nn::internal {

/// Returns the rule for a layer's weight of this shape and these fans.
Initializer weight_init(WeightInit init, const Shape& shape, const Fans& fans);
/// Returns the rule for the bias of a weight with this fan.
Initializer bias_init(WeightInit init, int64_t fan_in);

/// Whether a list may have two numbers for each axis: first those for the starts of all axes, then
/// those for the ends.
enum class Ends { kEqual, kMayDiffer };

/// Returns the list of an option with one number for each of `axes` axes: a single number counts
/// for all; an empty list stays empty. Error{kUsage}, which names layer and option, for another
/// length.
std::vector<int64_t> axis_list(std::string_view layer, std::string_view option,
                               const std::vector<int64_t>& list, int axes,
                               Ends ends = Ends::kEqual);

/// Error{kUsage} unless x has a batch, channels and `axes` spatial axes.
void require_spatial(std::string_view layer, const Tensor& x, int axes);

}  // namespace sluice::nn::internal
