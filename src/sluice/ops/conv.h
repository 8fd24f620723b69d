#pragma once
#include <vector>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// How a convolution or a pool pads its input.
enum class PadType {
  kExplicit,   ///< According to `padding`.
  kSameUpper,  ///< ceil(in / stride) positions; an odd element of padding is at the end.
  kSameLower,  ///< ceil(in / stride) positions; an odd element of padding is at the start.
  kValid,      ///< No padding.
};
constexpr std::string_view words_of(PadType) { return "explicit,same_upper,same_lower,valid"; }

/// Options of conv(). Each list has one entry for each spatial axis of the input, or one for all of
/// them; an empty list means the default for all of them.
struct ConvOptions {
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  int64_t groups = 1;
  PadType pad_type = PadType::kExplicit;
  static auto fields(auto&& use) {
    return use(
        field("stride", &ConvOptions::stride,
              "Elements of the input between two outputs; default 1."),
        field("padding", &ConvOptions::padding,
              "Zeros around the input: one number for both ends of each axis, or the starts of all "
              "axes and then their ends; default 0. Empty unless pad_type is explicit."),
        field("dilation", &ConvOptions::dilation,
              "Elements of the input between two taps; default 1."),
        field("groups", &ConvOptions::groups, "Groups of channels that are convolved apart."),
        field("pad_type", &ConvOptions::pad_type,
              "How padding is chosen: explicit uses `padding`; same_upper and same_lower give "
              "ceil(in / stride) positions, with an odd element at the end or the start; valid "
              "pads nothing."));
  }
};

/// Options of conv_transpose(). The lists are as in ConvOptions.
struct ConvTransposeOptions {
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  int64_t groups = 1;
  std::vector<int64_t> output_padding = {};
  static auto fields(auto&& use) {
    return use(
        field("stride", &ConvTransposeOptions::stride,
              "Elements of the output between two inputs; default 1."),
        field("padding", &ConvTransposeOptions::padding,
              "Elements cut from the output; otherwise as in ConvOptions."),
        field("dilation", &ConvTransposeOptions::dilation,
              "Elements of the output between two taps; default 1."),
        field("groups", &ConvTransposeOptions::groups, "Groups of channels, as in ConvOptions."),
        field("output_padding", &ConvTransposeOptions::output_padding,
              "Elements added at the end of each output axis, less than its stride or dilation; "
              "default 0."));
  }
};

/// Options of conv_weight_grad(). The lists are as in ConvOptions.
struct ConvWeightGradOptions {
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  int64_t groups = 1;
  static auto fields(auto&& use) {
    return use(
        required_field("kernel", &ConvWeightGradOptions::kernel,
                       "Taps of the weight, with an entry for each spatial axis."),
        field("stride", &ConvWeightGradOptions::stride,
              "Elements of x between two elements of y_grad; default 1."),
        field("padding", &ConvWeightGradOptions::padding,
              "Zeros around x, listed as in ConvOptions."),
        field("dilation", &ConvWeightGradOptions::dilation,
              "Elements of x between two taps; default 1."),
        field("groups", &ConvWeightGradOptions::groups, "Groups of channels, as in ConvOptions."));
  }
};

const OpDef& conv_def();
const OpDef& conv_transpose_def();
const OpDef& conv_weight_grad_def();

/// Returns the convolution (without flipping the kernel) of x (batch, channels_in, spatial…) and
/// w (channels_out, channels_in / groups, taps…), for 1 to 3 spatial axes: y (batch, channels_out,
/// spatial…). An axis of y has (in + padding - dilation·(taps - 1) - 1) / stride + 1 positions.
///
/// Each element is one chain of fused multiply-adds from zero, in ascending (taps, channel of the
/// group). Positions outside x count as zeros.
Tensor conv(TensorArg x, TensorArg w, const ConvOptions& options = {});

/// Returns the transpose of conv(): the gradient of its input if x is the gradient of its output.
/// x is (batch, channels_in, spatial…), w (channels_in, channels_out / groups, taps…), the result
/// (batch, channels_out, spatial…). An axis of the result has (in - 1)·stride - padding +
/// dilation·(taps - 1) + 1 + output_padding positions.
///
/// Each element is one chain of fused multiply-adds from zero, in ascending (taps, channel of x in
/// the group). Taps between the strided elements of x do not participate; positions outside x
/// participate as zeros.
Tensor conv_transpose(TensorArg x, TensorArg w, const ConvTransposeOptions& options = {});

/// Returns the gradient of the weight of conv(x, w) if y_grad is the gradient of its result:
/// (channels of y_grad, channels of x / groups, taps…).
///
/// Each element is one chain of fused multiply-adds from zero, in ascending (sample, position of
/// y_grad). Positions outside x count as zeros.
Tensor conv_weight_grad(TensorArg x, TensorArg y_grad, const ConvWeightGradOptions& options);

}  // namespace sluice::ops
