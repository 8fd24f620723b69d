#include <fmt/format.h>

#include <algorithm>

#include "sluice/nn/layers/common.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/conv.h"

namespace sluice::nn {
namespace {

template <typename Options>
void check_options(const std::string& name, int axes, Options& o) {
  require(o.channels >= 1, "{}: channels must be at least 1, got {}", name, o.channels);
  require(!o.kernel.empty(), "{}: kernel must have a number of taps, got none", name);
  o.kernel = internal::axis_list(name, "kernel", o.kernel, axes);
  o.stride = internal::axis_list(name, "stride", o.stride, axes);
  o.padding = internal::axis_list(name, "padding", o.padding, axes, internal::Ends::kMayDiffer);
  o.dilation = internal::axis_list(name, "dilation", o.dilation, axes);
}

template <typename Options>
std::string key_of(int axes, const Options& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {}", axes, o.channels, fmt::join(o.kernel, ","),
                     fmt::join(o.stride, ","), fmt::join(o.padding, ","),
                     fmt::join(o.dilation, ","), o.groups, static_cast<int>(o.bias),
                     static_cast<int>(o.init));
}

// Returns a division that cannot fail. The op refuses groups that do not divide the channels.
int64_t of_group(int64_t channels, int64_t groups) {
  return channels / std::max<int64_t>(groups, 1);
}

template <typename Options>
Tensor add_weight(Builder& b, const Options& o, std::vector<int64_t> dims, DType dtype) {
  dims.insert(dims.end(), o.kernel.begin(), o.kernel.end());
  const Shape shape(std::move(dims));
  return b.add_variable_input("weight", internal::weight_init(o.init, shape, conv_fans(shape)),
                              shape, dtype);
}

// The bias has one element for each channel, axis 1 of y.
template <typename Options>
Tensor add_bias(Builder& b, const Options& o, const Tensor& y, const Tensor& weight) {
  if (o.bias == Bias::kNone) return y;
  const int64_t fan = conv_fans(weight.shape()).in;
  const Tensor bias =
      b.add_variable_input("bias", internal::bias_init(o.init, fan), {o.channels}, y.dtype());
  std::vector<int64_t> dims(y.shape().dims().size() - 1, 1);
  dims[0] = o.channels;
  return y + ops::reshape(bias, Shape(std::move(dims)));
}

}  // namespace

namespace internal {

Convolution::Convolution(int axes, ConvOptions options)
    : axes_(axes), options_(std::move(options)) {
  check_options(fmt::format("Conv{}d", axes), axes, options_);
}

Tensor Convolution::build(Builder& b, Tensor x) const {
  const ConvOptions& o = options_;
  require_spatial(fmt::format("Conv{}d", axes_), x, axes_);
  const Tensor weight = add_weight(b, o, {o.channels, of_group(x.dim(1), o.groups)}, x.dtype());
  const Tensor y = ops::conv(x, weight,
                             {.stride = o.stride,
                              .padding = o.padding,
                              .dilation = o.dilation,
                              .groups = o.groups,
                              .pad_type = o.pad_type});
  return add_bias(b, o, y, weight);
}

std::string Convolution::cache_key() const {
  return fmt::format("{} {}", key_of(axes_, options_), static_cast<int>(options_.pad_type));
}

TransposedConvolution::TransposedConvolution(int axes, ConvTransposeOptions options)
    : axes_(axes), options_(std::move(options)) {
  const std::string name = fmt::format("ConvTranspose{}d", axes);
  check_options(name, axes, options_);
  options_.output_padding = axis_list(name, "output_padding", options_.output_padding, axes);
}

Tensor TransposedConvolution::build(Builder& b, Tensor x) const {
  const ConvTransposeOptions& o = options_;
  require_spatial(fmt::format("ConvTranspose{}d", axes_), x, axes_);
  require(o.groups >= 1 && o.channels % o.groups == 0,
          "ConvTranspose{}d: groups must divide the {} channels of the result, got {}", axes_,
          o.channels, o.groups);
  const Tensor weight = add_weight(b, o, {x.dim(1), o.channels / o.groups}, x.dtype());
  const Tensor y = ops::conv_transpose(x, weight,
                                       {.stride = o.stride,
                                        .padding = o.padding,
                                        .dilation = o.dilation,
                                        .groups = o.groups,
                                        .output_padding = o.output_padding});
  return add_bias(b, o, y, weight);
}

std::string TransposedConvolution::cache_key() const {
  return fmt::format("{} {}", key_of(axes_, options_), fmt::join(options_.output_padding, ","));
}

}  // namespace internal
}  // namespace sluice::nn
