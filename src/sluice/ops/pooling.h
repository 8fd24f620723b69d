#pragma once
#include "sluice/ops/conv.h"

namespace sluice::ops {

/// Options of max_pool(). Each list has an entry for each spatial axis of the input, or one for all
/// of them; an empty list means the default for all of them.
struct PoolOptions {
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  bool ceil_mode = false;
  PadType pad_type = PadType::kExplicit;
  static auto fields(auto&& use) {
    return use(
        required_field("kernel", &PoolOptions::kernel,
                       "Elements of a window along each spatial axis."),
        field("stride", &PoolOptions::stride,
              "Elements of the input between two windows; default kernel."),
        field("padding", &PoolOptions::padding,
              "Padding of the input: one number for both ends of each axis, or the starts of all "
              "axes and then their ends; default 0. Empty unless pad_type is explicit."),
        field("dilation", &PoolOptions::dilation,
              "Elements of the input between two of a window; default 1."),
        field("ceil_mode", &PoolOptions::ceil_mode,
              "The last window of an axis may reach beyond the padding, but it starts inside the "
              "input or the padding before it."),
        field("pad_type", &PoolOptions::pad_type,
              "How padding is chosen: explicit uses `padding`; same_upper and same_lower give "
              "ceil(in / stride) positions, with an odd element at the end or the start; valid "
              "pads nothing."));
  }
};

/// Options of average_pool(). The first six are as in PoolOptions.
struct AveragePoolOptions {
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  bool ceil_mode = false;
  PadType pad_type = PadType::kExplicit;
  bool count_padding = false;
  int64_t divisor = 0;
  static auto fields(auto&& use) {
    return use(
        required_field("kernel", &AveragePoolOptions::kernel,
                       "Elements of a window along each spatial axis."),
        field("stride", &AveragePoolOptions::stride,
              "Elements of the input between two windows; default kernel."),
        field("padding", &AveragePoolOptions::padding,
              "Padding of the input: one number for both ends of each axis, or the starts of all "
              "axes and then their ends; default 0. Empty unless pad_type is explicit."),
        field("dilation", &AveragePoolOptions::dilation,
              "Elements of the input between two of a window; default 1."),
        field("ceil_mode", &AveragePoolOptions::ceil_mode,
              "The last window of an axis may reach beyond the padding, but it starts inside the "
              "input or the padding before it."),
        field("pad_type", &AveragePoolOptions::pad_type,
              "How padding is chosen: explicit uses `padding`; same_upper and same_lower give "
              "ceil(in / stride) positions, with an odd element at the end or the start; valid "
              "pads nothing."),
        field("count_padding", &AveragePoolOptions::count_padding,
              "Count positions of the padding too, as zeros."),
        field("divisor", &AveragePoolOptions::divisor,
              "Divides each sum; 0: the count of positions does."));
  }
};

/// Options of the gradients: those of the pool, and the shape of its operand.
struct MaxPoolGradOptions : PoolOptions {
  Shape shape = {};
  static auto fields(auto&& use) {
    return PoolOptions::fields([&](const auto&... pool) {
      return use(pool...,
                 required_field("shape", &MaxPoolGradOptions::shape, "Shape of the operand."));
    });
  }
};
struct AveragePoolGradOptions : AveragePoolOptions {
  Shape shape = {};
  static auto fields(auto&& use) {
    return AveragePoolOptions::fields([&](const auto&... pool) {
      return use(pool...,
                 required_field("shape", &AveragePoolGradOptions::shape, "Shape of the operand."));
    });
  }
};

const OpDef& max_pool_def();
const OpDef& max_pool_taps_def();
const OpDef& max_pool_grad_def();
const OpDef& average_pool_def();
const OpDef& average_pool_grad_def();

/// Returns the largest element of each window of x (batch, channels, spatial…), for 1 to 3 spatial
/// axes. An axis has (in + padding - dilation·(kernel - 1) - 1) / stride + 1 windows, rounded down
/// or up (ceil_mode). Positions outside x do not participate. NaN is the largest element. Semantics
/// are those of torch.nn.functional.max_pool{1,2,3}d.
Tensor max_pool(TensorArg x, const PoolOptions& options);

/// Returns the position of the element that max_pool() selects in each window: the row-major number
/// of the first largest element, or of the last NaN. The dtype is u8 for windows of up to 256
/// elements, else i32. The gradient of max_pool() keeps this instead of x: 1 byte for each window.
Tensor max_pool_taps(TensorArg x, const PoolOptions& options);

/// Returns the gradient of the operand, of shape `shape`, of max_pool(x). Each element is the sum
/// of `grad` over the windows whose tap is this element, from zero in ascending order.
Tensor max_pool_grad(TensorArg grad, TensorArg taps, const Shape& shape,
                     const PoolOptions& options);

/// Returns the average of each window of x. Windows are as in max_pool(). The elements of a window
/// are added in ascending order from zero, and the sum is divided by their count. Semantics are
/// those of torch.nn.functional.avg_pool{1,2,3}d with count_include_pad=False.
Tensor average_pool(TensorArg x, const AveragePoolOptions& options);

/// Returns the gradient of the operand, of shape `shape`, of average_pool(x). Each element is the
/// sum of grad / count over the windows with this element, from zero in ascending order.
Tensor average_pool_grad(TensorArg grad, const Shape& shape, const AveragePoolOptions& options);

/// Return the mean or the maximum over all spatial axes, which keep size 1. The mean has the
/// canonical order of base/reduce.h, as mean() does.
Tensor global_average_pool(TensorArg x);
Tensor global_max_pool(TensorArg x);

}  // namespace sluice::ops
