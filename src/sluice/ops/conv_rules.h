#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/ir/op_def.h"
#include "sluice/ops/conv.h"

namespace sluice::ops {

/// The sizes of a convolution, with 3 spatial axes: those that the operands lack come first, with
/// size 1. `x` is the side that the window moves over, `y` the side with one element for each
/// position of the window. conv() computes y, conv_transpose() computes x.
struct ConvSizes {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t x_channels = 0;  ///< Channels of x in a group.
  int64_t y_channels = 0;  ///< Channels of y in a group.
  std::array<int64_t, 3> x_size{1, 1, 1};
  std::array<int64_t, 3> y_size{1, 1, 1};
  std::array<int64_t, 3> taps{1, 1, 1};
  std::array<int64_t, 3> stride{1, 1, 1};
  std::array<int64_t, 3> padding{0, 0, 0};  ///< Zeros before the first element of x.
  std::array<int64_t, 3> dilation{1, 1, 1};

  int64_t x_positions() const { return x_size[0] * x_size[1] * x_size[2]; }
  int64_t y_positions() const { return y_size[0] * y_size[1] * y_size[2]; }
  int64_t tap_count() const { return taps[0] * taps[1] * taps[2]; }
};

/// Returns the sizes of a conv, conv_transpose or conv_weight_grad op whose shapes agree.
ConvSizes conv_sizes(const OpView& op);

/// Returns the padding before and after an axis of `size` elements for kSameUpper or kSameLower.
std::pair<int64_t, int64_t> same_padding(PadType type, int64_t size, int64_t taps, int64_t stride,
                                         int64_t dilation);

/// The lists of an op's options, checked and completed: one entry for each spatial axis.
struct ConvWindow {
  std::vector<int64_t> taps, stride, dilation;
  std::vector<int64_t> begin, end;           ///< Padding.
  std::vector<int64_t> output_padding = {};  ///< conv_transpose() only.
};
ConvWindow conv_window(const OpView& op, const ConvOptions& options);
ConvWindow conv_window(const OpView& op, const ConvTransposeOptions& options);
ConvWindow conv_window(const OpView& op, const ConvWeightGradOptions& options);

/// The shape of an op's result, and its sizes.
struct ConvInference {
  Shape out;
  ConvSizes sizes;
};
/// The shape rules of the operators. Error{kUsage} naming the constraint that the op breaks.
ConvInference conv_rule(const OpView& op);
ConvInference conv_transpose_rule(const OpView& op);
ConvInference conv_weight_grad_rule(const OpView& op);

}  // namespace sluice::ops
