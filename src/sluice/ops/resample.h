#pragma once
#include <vector>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// How interpolate() computes an element from those around its position.
enum class Interpolation {
  kNearest,       ///< The element at floor(position), with position = index·scale.
  kNearestExact,  ///< The element at floor((index + 0.5)·scale).
  kLinear,        ///< Linear along each axis: bilinear on two axes, trilinear on three.
  kCubic,         ///< Cubic convolution along each axis with a = -0.75 (Keys, 1981).
};
constexpr std::string_view words_of(Interpolation) { return "nearest,nearest_exact,linear,cubic"; }

struct InterpolateOptions {
  Interpolation mode = Interpolation::kNearest;
  /// kLinear and kCubic: the outermost elements of operand and result have the same positions.
  bool align_corners = false;
  /// Elements of the operand for one of the result, along each resized axis; empty: the quotient of
  /// the sizes. Not used with align_corners.
  std::vector<double> scales = {};
};

/// Resizes the last axes of t to `sizes`, one size for each of these axes, as
/// torch.nn.functional.interpolate does without antialiasing. It is composed of other
/// operators. Error{kUsage} unless t is floating point with these axes, each of 1 to 2^24 elements,
/// sizes are at least 1, and scales are absent or one positive finite float32 for each size.
Tensor interpolate(TensorArg t, const std::vector<int64_t>& sizes,
                   const InterpolateOptions& options = {});

/// The means, or maxima, of windows of the last axes, as torch.nn.functional.adaptive_avg_pool1d to
/// 3d: window i of `size` along an axis of n elements has the elements from floor(i·n/size) to
/// ceil((i + 1)·n/size). The gradient of a maximum is added to its first element. Both are
/// composed of other operators. Errors: as interpolate().
Tensor adaptive_average_pool(TensorArg t, const std::vector<int64_t>& sizes);
Tensor adaptive_max_pool(TensorArg t, const std::vector<int64_t>& sizes);

/// The values of grid_sample() outside of t.
enum class GridPadding {
  kZeros,    ///< Zeros.
  kBorder,   ///< The outermost elements.
  kReflect,  ///< The elements inside, mirrored at the border.
};
constexpr std::string_view words_of(GridPadding) { return "zeros,border,reflect"; }

struct GridSampleOptions {
  Interpolation mode = Interpolation::kLinear;  ///< kLinear, or kNearest: ties to even positions.
  GridPadding padding = GridPadding::kZeros;
  /// Whether -1 and 1 are the centres of the outermost elements, instead of their outer edges.
  bool align_corners = false;
};

/// Samples images or volumes at positions that are data, as torch.nn.functional.grid_sample. For
/// images, t is (batch, channels, height, width), grid is (batch, rows, columns, 2) with (x, y) in
/// [-1, 1], and the result is (batch, channels, rows, columns). Volumes have a depth before the
/// height, and grid is (batch, layers, rows, columns, 3) with (x, y, z). Both inputs are
/// differentiable. It is composed of other operators. Error{kUsage} for other shapes or dtypes,
/// images that are empty or have more than 2^31 - 1 elements, or another mode.
Tensor grid_sample(TensorArg t, TensorArg grid, const GridSampleOptions& options = {});

struct RoiAlignOptions {
  std::vector<int64_t> size = {};
  double spatial_scale = 1;
  int64_t sampling_ratio = -1;
  bool aligned = false;
  static auto fields(auto&& use) {
    return use(
        required_field("size", &RoiAlignOptions::size, "Rows and columns of bins of each box."),
        field("spatial_scale", &RoiAlignOptions::spatial_scale,
              "Elements of x for one unit of the boxes' coordinates."),
        field("sampling_ratio", &RoiAlignOptions::sampling_ratio,
              "Samples of a bin along each axis; 0 or less: the size of the bin in elements, "
              "rounded up."),
        field("aligned", &RoiAlignOptions::aligned,
              "Whether the centre of element i is at i + 0.5, not at i. Otherwise boxes have at "
              "least the size of one element."));
  }
};

/// Options of the gradient: those of roi_align(), and the shape of its operand.
struct RoiAlignGradOptions : RoiAlignOptions {
  Shape shape = {};
  static auto fields(auto&& use) {
    return RoiAlignOptions::fields([&](const auto&... roi) {
      return use(roi..., field("shape", &RoiAlignGradOptions::shape));
    });
  }
};

const OpDef& roi_align_def();
const OpDef& roi_align_grad_def();

/// Returns the mean of bilinear samples in each bin of boxes of images, as
/// torchvision.ops.roi_align. x is (batch, channels, height, width), `boxes` is (boxes, 5) with
/// (image, x1, y1, x2, y2), and the result is (boxes, channels, size…). Samples more than one
/// element outside of the image are 0. A box yields NaN if its image is not in the batch, if a
/// coordinate is not finite, or if a bin has more than 2^20 elements along an axis. The gradient of
/// boxes is 0 by definition, as in torchvision.
Tensor roi_align(TensorArg x, TensorArg boxes, const RoiAlignOptions& options);

}  // namespace sluice::ops
