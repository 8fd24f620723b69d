#include "sluice/nn/layers/common.h"

namespace sluice::nn {
namespace {

constexpr int kAxes = 2;

template <typename Options>
void check_options(std::string_view name, Options& o) {
  require(!o.kernel.empty(), "{}: kernel must have a number of elements, got none", name);
  o.kernel = internal::axis_list(name, "kernel", o.kernel, kAxes);
  o.stride = internal::axis_list(name, "stride", o.stride, kAxes);
  o.padding = internal::axis_list(name, "padding", o.padding, kAxes, internal::Ends::kMayDiffer);
}

}  // namespace

MaxPool2d::MaxPool2d(ops::PoolOptions options) : options_(std::move(options)) {
  check_options("MaxPool2d", options_);
  options_.dilation = internal::axis_list("MaxPool2d", "dilation", options_.dilation, kAxes);
}

Tensor MaxPool2d::build(Builder&, Tensor x) const {
  internal::require_spatial("MaxPool2d", x, kAxes);
  return ops::max_pool(x, options_);
}

AvgPool2d::AvgPool2d(AvgPoolOptions options) : options_(std::move(options)) {
  check_options("AvgPool2d", options_);
}

Tensor AvgPool2d::build(Builder&, Tensor x) const {
  internal::require_spatial("AvgPool2d", x, kAxes);
  return ops::average_pool(x, {.kernel = options_.kernel,
                               .stride = options_.stride,
                               .padding = options_.padding,
                               .ceil_mode = options_.ceil_mode,
                               .count_padding = options_.count_padding,
                               .divisor = options_.divisor});
}

}  // namespace sluice::nn
