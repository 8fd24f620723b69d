#include <algorithm>

#include "../random_graph_ops.h"
#include "sluice/ops/ops.h"

namespace sluice::property {
namespace {

Tensor bounded(const Tensor& t) { return ops::clip(t, {.min = -4, .max = 4}); }

Tensor channel_bias(Scope& s, Dice& dice, const Tensor& y) {
  std::vector<int64_t> dims(static_cast<size_t>(y.rank() - 1), 1);
  dims[0] = y.dim(1);
  return s.with_shape(dice, Shape(dims));
}

/// A weight (channels_out, channels_in, taps…) of one or two spatial axes.
Tensor conv_weight(Scope& s, Dice& dice) {
  const auto is_weight = [](const Tensor& t) {
    return t.dtype() == f32 && (t.rank() == 3 || t.rank() == 4) && t.elements() <= 128;
  };
  if (const auto t = s.find(dice, is_weight); t && !dice.one_in(4)) return *t;
  std::vector<int64_t> dims{1 + dice(4), 1 + dice(3)};
  for (int axes = 1 + dice(2); axes > 0; --axes) dims.push_back(1 + dice(3));
  return s.with_shape(dice, Shape(dims));
}

/// A convolution with its gradients, and the update of its weight. Returns whether it wrote.
bool convolution(Scope& s, Dice& dice) {
  const Tensor w = conv_weight(s, dice);
  ops::ConvWeightGradOptions g;
  g.groups = w.dim(0) % 2 == 0 && dice.one_in(3) ? 2 : 1;
  std::vector<int64_t> dims{1 + dice(2), w.dim(1) * g.groups};
  for (int64_t axis = 2; axis < w.rank(); ++axis) {
    g.kernel.push_back(w.dim(axis));
    g.stride.push_back(1 + dice(2));
    g.dilation.push_back(1 + dice(2));
    const int64_t extent = g.dilation.back() * (g.kernel.back() - 1) + 1;
    g.padding.push_back(extent >= 3 ? dice(2) : 0);
    dims.push_back(extent + dice(3));
  }
  const ops::ConvOptions o{
      .stride = g.stride, .padding = g.padding, .dilation = g.dilation, .groups = g.groups};
  const Tensor x = bounded(s.with_shape(dice, Shape(dims)));
  Tensor y = ops::conv(x, w, o);
  if (!dice.one_in(3)) y = y + channel_bias(s, dice, y);
  if (dice.one_in(2)) y = dice.one_in(2) ? ops::relu(y) : ops::tanh(y);
  s.add(y);
  if (dice.one_in(3)) return false;
  const Tensor dy = ops::tanh(dice.one_in(2) ? y : s.with_shape(dice, y.shape()));
  if (dice.one_in(2)) {
    const ops::ConvTransposeOptions t{
        .stride = g.stride, .padding = g.padding, .dilation = g.dilation, .groups = g.groups};
    s.add(ops::conv_transpose(dy, w, t));
  }
  const Tensor dw = ops::conv_weight_grad(x, dy, g) * (1.0 / 8);
  if (s.pure || s.differentiable || s.is_constant(w)) {
    s.add(dw);
    return false;
  }
  ops::scaled_add_(w, dw, 1.0, -0.5);
  return true;
}

Tensor image(Scope& s, Dice& dice) {
  std::vector<int64_t> dims{1 + dice(2), 1 + dice(4)};
  for (int axes = 1 + dice(2); axes > 0; --axes) dims.push_back(2 + dice(5));
  return s.with_shape(dice, Shape(dims));
}

void pool(Scope& s, Dice& dice) {
  const Tensor x = image(s, dice);
  if (dice.one_in(4)) {
    s.add(dice.one_in(2) ? ops::global_max_pool(x) : ops::global_average_pool(x));
    return;
  }
  ops::PoolOptions o;
  for (int64_t axis = 2; axis < x.rank(); ++axis) {
    const int64_t max = std::min<int64_t>(x.dim(axis), 3);
    o.kernel.push_back(1 + dice(static_cast<int>(max)));
    o.stride.push_back(1 + dice(3));
    o.padding.push_back(dice(static_cast<int>(o.kernel.back() / 2 + 1)));
  }
  o.ceil_mode = dice.one_in(3);
  if (dice.one_in(2)) {
    s.add(ops::max_pool(x, o));
    return;
  }
  s.add(ops::average_pool(x, {.kernel = o.kernel,
                              .stride = o.stride,
                              .padding = o.padding,
                              .ceil_mode = o.ceil_mode,
                              .count_padding = dice.one_in(2)}));
}

void norm(Scope& s, Dice& dice) {
  const Tensor x = bounded(image(s, dice));
  const int kind = dice(4);
  const int64_t parameters = kind == 0 ? x.dim(-1) : x.dim(1);
  const Tensor weight = s.with_shape(dice, {parameters});
  const Tensor bias = s.with_shape(dice, {parameters});
  if (kind == 0) {
    s.add(dice.one_in(2) ? ops::rms_norm(x, weight) : ops::layer_norm(x, weight, bias));
  } else if (kind == 1) {
    s.add(ops::group_norm(x, weight, bias, {.groups = dice.one_in(2) ? 1 : parameters}));
  } else if (kind == 2) {
    const Tensor mean = s.with_shape(dice, {parameters});
    const Tensor variance = ops::exp(ops::tanh(s.with_shape(dice, {parameters})));
    s.add(ops::batch_norm_inference(x, weight, bias, mean, variance));
  } else {
    const Tensors all = ops::batch_norm(x, weight, bias);
    s.add(all[0]);
    if (s.differentiable) return;
    s.add(all[1]);
    s.add(all[2]);
  }
}

}  // namespace

bool add_image_op(Scope& s, Dice& dice) {
  switch (dice(4)) {
    case 0:
      pool(s, dice);
      return false;
    case 1:
      norm(s, dice);
      return false;
    default:
      return convolution(s, dice);
  }
}

}  // namespace sluice::property
