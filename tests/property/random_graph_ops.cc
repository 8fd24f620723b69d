#include "random_graph_ops.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "sluice/ops/ops.h"

namespace sluice::property {
namespace {

bool is_f32(const Tensor& t) { return t.dtype() == f32; }

std::vector<int64_t> some_axes(Dice& dice, const Tensor& t) {
  std::vector<int64_t> axes;
  for (int a = 0; a < t.rank(); ++a) {
    if (dice.one_in(2)) axes.push_back(dice.one_in(2) ? a : a - t.rank());
  }
  return axes;
}

/// Returns an operand that broadcasts to the shape of `a`: of equal shape, a row, or a scalar.
Tensor partner(Scope& s, Dice& dice, const Tensor& a) {
  const int kind = dice(8);
  if (kind == 0) return ops::scalar_like(a, dice.real(-1, 1));
  if (kind == 1) return s.with_shape(dice, {});
  if (kind == 2 && a.rank() > 0) return s.with_shape(dice, {a.dim(-1)});
  if (kind == 3 && a.rank() > 1) return s.with_shape(dice, {a.dim(-2), 1});
  return s.with_shape(dice, a.shape());
}

void unary(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  const auto make = [&]() -> Tensor {
    switch (dice(15)) {
      case 0:
        return -a;
      case 1:
        return ops::abs(a);
      case 2:
        return ops::tanh(a);
      case 3:
        return ops::sigmoid(a);
      case 4:
        return ops::relu(a);
      case 5:
        return ops::gelu(a);
      case 6:
        return ops::gelu_erf(a);
      case 7:
        return ops::swish(a);
      case 8:
        return ops::exp(ops::clip(a, {.min = -2, .max = 2}));
      case 9:
        return ops::sqrt(ops::abs(a) + 0.25);
      case 10:
        return ops::log(ops::abs(a) + 0.25);
      case 11:
        return ops::clip(a, {.min = -0.75, .max = 1.5});
      case 12:
        return ops::identity(a);
      case 13:
        return s.differentiable ? ops::tanh(a) : ops::detach(a);
      default:
        return a * dice.real(-2, 2);
    }
  };
  s.add(make());
}

void binary(Scope& s, Dice& dice) {
  Tensor a = s.any(dice);
  Tensor b = partner(s, dice, a);
  if (dice.one_in(4)) std::swap(a, b);
  const auto make = [&]() -> Tensor {
    switch (dice(9)) {
      case 0:
      case 1:
        return a + b;
      case 2:
        return a - b;
      case 3:
        return ops::tanh(a) * b;
      case 4:
        return a / (ops::abs(b) + 1.0);
      case 5:
        return ops::maximum(a, b);
      case 6:
        return ops::minimum(a, b);
      case 7:
        return ops::pow(ops::abs(a) + 0.5, 1.5);
      default:
        return ops::add_n({a, s.with_shape(dice, a.shape()), a});
    }
  };
  s.add(make());
}

void contraction(Scope& s, Dice& dice) {
  const Tensor a = ops::clip(s.any(dice), {.min = -4, .max = 4});
  if (a.rank() == 0) return unary(s, dice);
  const int64_t k = a.dim(-1);
  const int64_t n = 1 + dice(s.largest);
  switch (dice(a.rank() > 1 ? 4 : 2)) {
    case 0:
      s.add(ops::matmul(a, s.with_shape(dice, {k, n})));
      break;
    case 1:
      s.add(ops::matmul(a, s.with_shape(dice, {n, k}), {.rhs_transposed = true}));
      break;
    case 2:
      s.add(ops::matmul(a, s.with_shape(dice, {a.dim(-2), n}), {.lhs_transposed = true}));
      break;
    default:
      s.add(ops::matmul(a, s.with_shape(dice, {k})));
      break;
  }
}

void reduction(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  const ops::ReduceOptions options{.axes = some_axes(dice, a), .keepdims = dice.one_in(2)};
  const auto make = [&]() -> Tensor {
    switch (dice(8)) {
      case 0:
      case 1:
        return ops::sum(a, options);
      case 2:
        return ops::mean(a, options);
      case 3:
        return ops::max(a, options);
      case 4:
        return ops::min(a, options);
      case 5:
        return ops::l2(a, options);
      case 6:
        return ops::sumsquare(ops::tanh(a), options);
      default:
        return ops::logsumexp(a, options);
    }
  };
  s.add(make());
}

Shape refactored(Dice& dice, const Shape& shape) {
  int64_t left = shape.elements();
  std::vector<int64_t> dims;
  for (const int64_t d : {2, 3, 5, 2}) {
    if (left % d == 0 && dice.one_in(2)) {
      dims.push_back(d);
      left /= d;
    }
  }
  dims.push_back(left);
  return Shape(std::move(dims));
}

void movement(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  switch (dice(9)) {
    case 0:
      s.add(ops::flatten(a));
      break;
    case 1:
      s.add(ops::reshape(a, refactored(dice, a.shape())));
      break;
    case 2:
      s.add(ops::reshape_(a, refactored(dice, a.shape())));
      break;
    case 3:
      s.add(ops::squeeze(a));
      break;
    case 4:
      s.add(ops::broadcast_to(a, [&] {
        std::vector<int64_t> dims(a.shape().begin(), a.shape().end());
        if (dims.size() < 3) dims.insert(dims.begin(), 1 + dice(3));
        return Shape(std::move(dims));
      }()));
      break;
    case 5:
    case 6: {
      std::vector<int64_t> permutation(static_cast<size_t>(a.rank()));
      std::iota(permutation.begin(), permutation.end(), 0);
      for (size_t i = permutation.size(); i > 1; --i) {
        std::swap(permutation[i - 1], permutation[static_cast<size_t>(dice(static_cast<int>(i)))]);
      }
      s.add(ops::transpose(a, permutation));
      break;
    }
    case 7: {
      ops::SliceBounds start, stop, step;
      for (int i = 0; i < a.rank(); ++i) {
        const int64_t first = dice(static_cast<int>(a.shape()[i]));
        const bool backwards = dice.one_in(4);
        start.emplace_back(first);
        stop.push_back(backwards ? std::nullopt
                                 : std::optional(first + 1 + dice(static_cast<int>(a.shape()[i]))));
        step.emplace_back(backwards ? -1 : 1);
      }
      if (a.rank() > 0) s.add(ops::slice(a, start, stop, step));
      break;
    }
    default: {
      if (a.rank() == 0) break;
      const int64_t axis = dice(a.rank());
      if (a.shape()[static_cast<int>(axis)] > 1 && dice.one_in(2)) {
        const int64_t size = a.shape()[static_cast<int>(axis)];
        const int64_t first = 1 + dice(static_cast<int>(size - 1));
        for (const Tensor& t : ops::split(a, std::vector<int64_t>{first, size - first}, axis))
          s.add(t);
      } else {
        s.add(ops::concat({a, s.with_shape(dice, a.shape()), a}, axis));
      }
    }
  }
}

// Adds a loss whose labels are the argmax of another tensor of that shape.
void loss(Scope& s, Dice& dice, const Tensor& a) {
  const Tensor b = s.with_shape(dice, a.shape());
  const Tensor labels = ops::argmax(s.differentiable ? ops::detach(b) : b, {.axis = -1});
  const auto reduction = static_cast<ops::LossReduction>(dice(3));
  const bool ignores = dice.one_in(3);
  const ops::NllLossOptions options{
      .reduction = reduction, .has_ignore_index = ignores, .ignore_index = 1};
  switch (dice(s.differentiable ? 2 : 3)) {
    case 0:
      s.add(ops::cross_entropy(a, labels, options));
      break;
    case 1:
      s.add(ops::nll_loss(ops::softmax(a), labels, options));
      break;
    default: {
      const auto [each, dx] = ops::cross_entropy_with_grad(a, labels,
                                                           {.reduction = reduction,
                                                            .has_ignore_index = ignores,
                                                            .ignore_index = 1,
                                                            .loss_grad = 0.5});
      s.add(each);
      s.add(dx);
    }
  }
}

void normalisation(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  if (a.rank() == 0) return unary(s, dice);
  if (dice.one_in(2)) return loss(s, dice, a);
  const int64_t axis = dice.one_in(3) ? dice(a.rank()) : -1;
  s.add(dice.one_in(2) ? ops::softmax(a, axis) : ops::log_softmax(a, axis));
}

void choice(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  const Tensor b = s.with_shape(dice, a.shape());
  const Tensor x = s.differentiable ? ops::detach(a) : a;
  const Tensor y = s.differentiable ? ops::detach(b) : b;
  const Tensor where = [&] {
    switch (dice(5)) {
      case 0:
        return ops::greater(x, y);
      case 1:
        return ops::less_equal(x, y);
      case 2:
        return ops::equal(x, y);
      case 3:
        return ops::logical_or(ops::less(x, y), ops::greater_equal(x, y));
      default:
        return ops::logical_not(ops::not_equal(x, y));
    }
  }();
  s.values.push_back(where);
  s.add(ops::where(where, a, partner(s, dice, b)));
}

void integers(Scope& s, Dice& dice) {
  const Tensor a = s.any(dice);
  if (a.rank() == 0) return unary(s, dice);
  const int axis = dice(a.rank());
  const Tensor i = dice.one_in(2) ? ops::argmax(a, {.axis = axis}) : ops::argmin(a, {.axis = axis});
  const Tensor j = dice.one_in(2) ? ops::increment_mod(i, 1, 3) : i + i * ops::scalar_like(i, 2);
  s.values.push_back(j);
  switch (dice(3)) {
    case 0:
      s.add(ops::gather(a, j, {.axis = axis, .zero_out_of_range = true}));
      break;
    case 1:
      s.add(ops::onehot(j, s.graph.constant(HostTensor::of<float>({2}, f32, {-0.5f, 0.75f})),
                        {.classes = 4}));
      break;
    default:
      s.add(ops::cast(j, f32) * 0.25);
  }
}

void half_precision(Scope& s, Dice& dice) {
  const DType dtype = dice.one_in(2) ? f16 : bf16;
  const Tensor a = ops::cast(s.any(dice), dtype);
  const Tensor b = ops::cast(s.with_shape(dice, a.shape()), dtype);
  s.add(ops::cast(dice.one_in(2) ? a + b : ops::gelu(a - b), f32));
}

void random_numbers(Scope& s, Dice& dice) {
  const TensorSpec spec{{2}, u32, {}};
  Tensor seed = s.with_spec(dice, spec);
  if (dice.one_in(2)) seed = s.add(ops::fold_seed(seed, dice(100)));
  const Tensor a = s.any(dice);
  switch (dice(s.differentiable ? 1 : 4)) {
    case 2:
      s.add(ops::random_normal(seed, a.shape(), 0, 0.5));
      break;
    case 3:
      s.add(ops::random_uniform(seed, random_shape(dice, s.largest), -1, 1));
      break;
    default:
      s.add(ops::dropout(a, seed, 0.25));
  }
}

Tensor activated(Dice& dice, const Tensor& t, bool in_place) {
  switch (dice(in_place ? 4 : 6)) {
    case 0:
      return in_place ? ops::relu_(t) : ops::relu(t);
    case 1:
      return in_place ? ops::gelu_(t) : ops::gelu(t);
    case 2:
      return in_place ? ops::swish_(t) : ops::swish(t);
    case 3:
      return t;
    case 4:
      return ops::tanh(t);
    default:
      return ops::sigmoid(t);
  }
}

// Updates a weight by its gradient like an optimizer, with or without state.
void train(Scope& s, Dice& dice, const Tensor& w, Tensor gradient) {
  if (dice.one_in(4)) gradient = gradient * (1.0 / (1.0 + ops::l2(gradient)));
  if (dice.one_in(4)) gradient = gradient + w * 0.0625;
  if (dice.one_in(8)) s.add(gradient);
  const auto is_state = [&](const Tensor& t) {
    return t.spec() == w.spec() && !s.is_constant(t) &&
           s.graph.info(t).storage != s.graph.info(w).storage;
  };
  const auto state = [&] {
    const auto apart = std::find_if(s.weights.begin(), s.weights.end(), is_state);
    if (apart != s.weights.end()) return *apart;
    const auto found = s.find(dice, is_state);
    return found ? *found : s.keep(gradient * 0.5);
  };
  switch (dice(6)) {
    case 0: {
      const Tensor m = state();
      ops::accumulate_moving_average_(m, gradient, 0.75);
      ops::scaled_add_(w, m, 1.0, -0.125);
      break;
    }
    case 1: {
      const Tensor v = state();
      ops::accumulate_moving_average_square_(v, gradient, 0.75);
      ops::scaled_add_(w, ops::adam_updater(gradient, ops::abs(v)), 1.0, -0.01);
      break;
    }
    case 2: {
      const Tensor m = state();
      ops::accumulate_(m, gradient, s.with_shape(dice, {}));
      break;
    }
    case 3:
      ops::scaled_add_(w, gradient, 1.0, s.with_shape(dice, {}));
      break;
    default:
      ops::scaled_add_(w, gradient, 1.0, -0.125);
  }
  if (dice.one_in(4)) ops::scaled_add_(w, w, 1.0, -0.25);
  if (dice.one_in(8)) ops::accumulator_scale_(w, 0.5);
}

/// Uses a weight in the products of a layer: forward, gradients of the input and of the weight, its
/// update.
bool layer(Scope& s, Dice& dice) {
  const auto weight =
      s.weights.empty()
          ? s.find(dice, [](const Tensor& t) { return is_f32(t) && t.rank() == 2; })
          : std::optional(s.weights[static_cast<size_t>(dice(static_cast<int>(s.weights.size())))]);
  if (!weight) {
    contraction(s, dice);
    return false;
  }
  const Tensor& w = *weight;
  const Tensor x = ops::clip(s.with_shape(dice, {1 + dice(8), w.dim(0)}), {.min = -4, .max = 4});
  Tensor y = ops::matmul(x, w);
  if (dice.one_in(6)) s.add(y);
  const bool in_place = !s.pure && !s.differentiable && dice.one_in(4);
  if (!dice.one_in(3)) {
    const Tensor b = partner(s, dice, y);
    y = in_place ? ops::add_(y, b) : y + b;
  }
  y = activated(dice, y, in_place);
  if (dice.one_in(4)) y = y + s.with_shape(dice, y.shape());
  s.add(y);
  const Tensor dy = ops::tanh(dice.one_in(2) ? y : s.with_shape(dice, y.shape()));
  const auto input_gradient = [&] {
    Tensor dx = ops::matmul(dy, w, {.rhs_transposed = true});
    if (dice.one_in(2)) dx = activated(dice, dx, false) * x;
    s.add(dx);
  };
  const bool before = dice.one_in(2);
  if (before) input_gradient();
  bool wrote = false;
  if (!s.pure && !s.differentiable && !s.is_constant(w) && !dice.one_in(3)) {
    train(s, dice, w, ops::matmul(x, dy, {.lhs_transposed = true}) * (1.0 / 8));
    wrote = true;
  } else if (dice.one_in(2)) {
    s.add(ops::matmul(x, dy, {.lhs_transposed = true}) - w);
  }
  if (!before && dice.one_in(2)) input_gradient();
  return wrote;
}

bool update(Scope& s, Dice& dice) {
  if (s.pure) {
    binary(s, dice);
    return false;
  }
  const Tensor a = s.writable(dice);
  const auto other = [&] { return s.with_shape(dice, a.shape()); };
  const auto make = [&]() -> Tensor {
    switch (dice(s.differentiable ? 5 : 13)) {
      case 0:
        return ops::add_(a, partner(s, dice, ops::identity(a)));
      case 1:
        return ops::relu_(a);
      case 2:
        return ops::gelu_(a);
      case 3:
        return ops::swish_(a);
      case 4:
        return ops::add_(a, other());
      case 5:
        return ops::scaled_add_(a, other(), 1.0, -0.125);
      case 6:
        return ops::scaled_add_(a, other(), s.with_shape(dice, {}), 0.5);
      case 7:
        return ops::accumulate_(a, other(), 0.5);
      case 8:
        return ops::accumulate_mean_(a, other(), 2.0);
      case 9:
        return ops::accumulator_scale_(a, 0.5);
      case 10:
        return ops::accumulate_moving_average_square_(a, ops::tanh(other()), 0.75);
      case 11:
        return ops::accumulator_zero_(a);
      default:
        return ops::copy_var_update_(a, other());
    }
  };
  s.add(make());
  return true;
}

}  // namespace

Shape random_shape(Dice& dice, int largest) {
  std::vector<int64_t> dims(
      static_cast<size_t>(dice.one_in(8) ? 0 : 1 + dice(largest > 16 ? 2 : 3)));
  for (int64_t& d : dims) d = 1 + dice(largest);
  if (!dims.empty() && dice.one_in(10)) dims.back() = 17;
  return Shape(std::move(dims));
}

HostTensor random_array(const TensorSpec& spec, uint64_t seed) {
  HostTensor array(spec);
  const Seed key = fold(Seed{}, seed);
  const auto n = static_cast<size_t>(spec.elements());
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = random_bits(key, i);
    switch (spec.dtype) {
      case DType::kF32:
        array.as<float>()[i] = 2 * to_unit(bits) - 1;
        break;
      case DType::kI32:
        array.as<int32_t>()[i] = static_cast<int32_t>(bits % 5);
        break;
      case DType::kU32:
        array.as<uint32_t>()[i] = bits;
        break;
      case DType::kBool:
        array.as<bool>()[i] = bits % 2 == 0;
        break;
      case DType::kU8:
        array.as<uint8_t>()[i] = static_cast<uint8_t>(bits % 7);
        break;
      default:
        return random_array({spec.shape, f32, {}}, seed).cast(spec.dtype);
    }
  }
  return array;
}

std::optional<Tensor> Scope::find(Dice& dice,
                                  const std::function<bool(const Tensor&)>& wanted) const {
  Tensors found;
  std::copy_if(values.begin(), values.end(), std::back_inserter(found), wanted);
  if (found.empty()) return std::nullopt;
  const int n = static_cast<int>(found.size());
  return found[static_cast<size_t>(dice.one_in(2) ? n - 1 - dice(std::min(n, 3)) : dice(n))];
}

Tensor Scope::any(Dice& dice) const { return *find(dice, is_f32); }

Tensor Scope::with_spec(Dice& dice, const TensorSpec& spec) {
  if (const auto t = find(dice, [&](const Tensor& v) {
        return v.shape() == spec.shape && v.dtype() == spec.dtype;
      })) {
    return *t;
  }
  const bool floats = spec.dtype == f32;
  if (!floats || dice.one_in(4))
    return graph.constant(random_array(spec, static_cast<uint64_t>(dice(1000))));
  if (const auto t = find(
          dice, [&](const Tensor& v) { return is_f32(v) && v.elements() == spec.elements(); })) {
    return keep(ops::reshape(*t, spec.shape));
  }
  return keep(ops::broadcast_to(ops::mean(any(dice)), spec.shape));
}

bool Scope::is_constant(const Tensor& t) const {
  return graph.info(graph.storage(graph.info(t).storage).root).kind == TensorKind::kConstant;
}

Tensor Scope::writable(Dice& dice) const {
  const auto t = find(dice, [&](const Tensor& v) { return is_f32(v) && !is_constant(v); });
  return t ? *t : ops::identity(any(dice));
}

Tensor Scope::keep(Tensor t) {
  if (t.elements() > 0 && t.elements() <= max_elements()) values.push_back(t);
  return t;
}

Tensor Scope::add(Tensor t) {
  if (t.elements() > max_elements()) t = ops::mean(t, {.axes = {-1}});
  return keep(t);
}

bool add_plain_op(Scope& s, Dice& dice) {
  if (s.all_operators && !dice.one_in(6)) return add_operator(s, dice);
  if (s.layered && dice.one_in(2)) return layer(s, dice);
  if (dice.one_in(10)) return add_image_op(s, dice);
  switch (dice(s.differentiable ? 13 : 17)) {
    case 0:
    case 1:
      unary(s, dice);
      return false;
    case 2:
    case 3:
      binary(s, dice);
      return false;
    case 4:
      contraction(s, dice);
      return false;
    case 5:
      reduction(s, dice);
      return false;
    case 6:
    case 7:
      movement(s, dice);
      return false;
    case 8:
    case 9:
      normalisation(s, dice);
      return false;
    case 10:
      choice(s, dice);
      return false;
    case 11:
      random_numbers(s, dice);
      return false;
    case 12:
    case 13:
    case 14:
      return update(s, dice);
    case 15:
      integers(s, dice);
      return false;
    default:
      half_precision(s, dice);
      return false;
  }
}

}  // namespace sluice::property
