// Elementwise operators of PyTorch: a row builds each.
#include <cmath>
#include <numbers>

#include "operators.h"

namespace sluice::test {
namespace {

Tensor softplus(const Call& c) {
  const double beta = c.number("beta", 1);
  const Tensor scaled = c.x() * beta;
  return ops::where(ops::greater(scaled, c.number("threshold", 20)), c.x(),
                    ops::softplus(scaled) / beta);
}

Tensor celu(const Call& c) {
  const double alpha = c.number("alpha", 1);
  return ops::where(ops::greater(c.x(), 0.0), c.x(), ops::elu(c.x() / alpha) * alpha);
}

Tensor selu(const Call& c) { return ops::elu(c.x(), 1.6732632423543772) * 1.0507009873554805; }

Tensor softshrink(const Call& c) {
  const double limit = c.number("lambd", 0.5);
  return c.x() - ops::clip(c.x(), {.min = -limit, .max = limit});
}

Tensor hardshrink(const Call& c) {
  return ops::where(ops::greater(ops::abs(c.x()), c.number("lambd", 0.5)), c.x(), 0.0);
}

Tensor glu(const Call& c) {
  const Tensors halves = ops::split(c.x(), 2, c.integer("dim", -1));
  return halves[0] * ops::sigmoid(halves[1]);
}

Tensor prelu(const Call& c) {
  Tensor weight = c["weight"];
  if (weight.rank() == 1 && c.x().rank() != 1) {  // Channels are axis 1.
    std::vector<int64_t> dims(static_cast<size_t>(std::max(c.x().rank() - 1, 0)), 1);
    if (!dims.empty()) dims[0] = weight.dim(0);
    weight = ops::reshape(weight, Shape(dims));
  }
  return ops::where(ops::greater(c.x(), 0.0), c.x(), weight * c.x());
}

Tensor round(const Call& c) {
  if (!c.given("decimals")) return ops::round(c.x());
  const double factor = std::pow(10, c.number("decimals", 0));
  return ops::round(c.x() * factor) / factor;
}

Tensor div(const Call& c) {
  const Tensor y = c.with("other", [](const auto& a, const auto& b) { return ops::div(a, b); });
  const std::string mode = c.text("rounding_mode");
  return mode == "floor" ? ops::floor(y) : mode == "trunc" ? ops::trunc(y) : y;
}

Tensor clamp(const Call& c) {
  const auto max = [](const auto& a, const auto& b) { return ops::maximum(a, b); };
  const auto min = [](const auto& a, const auto& b) { return ops::minimum(a, b); };
  Tensor y = c.x();
  if (c.has("min")) y = max(y, c["min"]);
  if (c.given("min")) y = max(y, c.number("min", 0));
  if (c.has("max")) y = min(y, c["max"]);
  return c.given("max") ? min(y, c.number("max", 0)) : y;
}

Tensor lerp(const Call& c) {
  const Tensor span = c["end"] - c.x();
  return c.x() + (c.has("weight") ? c["weight"] * span : span * c.number("weight", 0));
}

Tensor ldexp(const Call& c) { return c.x() * ops::pow(2.0, ops::cast(c["other"], c.x().dtype())); }

void add_unary(BuildTable& t) {
  for (const char* name : {"positive", "clone", "contiguous"})
    t[name] = row([](const Call& c) { return ops::identity(c.x()); });
  t["abs"] = unary(ops::abs);
  t["neg"] = unary(ops::neg);
  t["exp"] = unary(ops::exp);
  t["exp2"] = row([](const Call& c) { return ops::pow(2.0, c.x()); });
  t["expm1"] = unary(ops::expm1);
  t["log"] = unary(ops::log);
  t["log1p"] = unary(ops::log1p);
  t["log2"] = unary(ops::log2);
  t["log10"] = row([](const Call& c) { return ops::log(c.x()) * std::numbers::log10e; });
  t["sqrt"] = unary(ops::sqrt);
  t["rsqrt"] = unary(ops::rsqrt);
  t["reciprocal"] = row([](const Call& c) { return 1.0 / c.x(); });
  t["square"] = unary(ops::square);
  t["sin"] = unary(ops::sin);
  t["cos"] = unary(ops::cos);
  t["tan"] = unary(ops::tan);
  t["atan"] = unary(ops::atan);
  t["tanh"] = unary(ops::tanh);
  t["sigmoid"] = unary(ops::sigmoid);
  t["erf"] = unary(ops::erf);
  t["erfc"] = row([](const Call& c) { return 1.0 - ops::erf(c.x()); });
  t["floor"] = unary(ops::floor);
  t["ceil"] = unary(ops::ceil);
  t["trunc"] = unary(ops::trunc);
  t["frac"] = row([](const Call& c) { return c.x() - ops::trunc(c.x()); });
  t["round"] = row(round);
  t["sign"] = t["sgn"] = unary(ops::sign);
  t["signbit"] = row([](const Call& c) { return ops::less(c.x(), 0.0); });
  t["isnan"] = unary(ops::isnan);
  t["isinf"] = unary(ops::isinf);
  t["isfinite"] = unary(ops::isfinite);
  t["logical_not"] = unary(ops::logical_not);
  t["bitwise_not"] = unary(ops::bitwise_not);
  t["deg2rad"] = row([](const Call& c) { return c.x() * (std::numbers::pi / 180); });
  t["rad2deg"] = row([](const Call& c) { return c.x() * (180 / std::numbers::pi); });
  t["fill"] = row([](const Call& c) {
    return ops::broadcast_to(ops::scalar_like(c.x(), c.number("value", 0)), c.x().shape());
  });
}

void add_activations(BuildTable& t) {
  t["gelu"] = row([](const Call& c) {
    return c.text("approximate") == "tanh" ? ops::gelu(c.x()) : ops::gelu_erf(c.x());
  });
  t["silu"] = unary(ops::swish);
  t["softplus"] = row(softplus);
  t["elu"] = row([](const Call& c) { return ops::elu(c.x(), c.number("alpha", 1)); });
  t["celu"] = row(celu);
  t["selu"] = row(selu);
  t["leaky_relu"] =
      row([](const Call& c) { return ops::leaky_relu(c.x(), c.number("negative_slope", 0.01)); });
  t["hardswish"] = unary(ops::hard_swish);
  t["hardsigmoid"] = unary(ops::hard_sigmoid);
  t["hardtanh"] = row([](const Call& c) {
    return ops::clip(c.x(), {.min = c.number("min_val", -1), .max = c.number("max_val", 1)});
  });
  t["relu6"] = row([](const Call& c) { return ops::clip(c.x(), {.min = 0, .max = 6}); });
  t["mish"] = unary(ops::mish);
  t["softsign"] = row([](const Call& c) { return c.x() / (1.0 + ops::abs(c.x())); });
  t["tanhshrink"] = row([](const Call& c) { return c.x() - ops::tanh(c.x()); });
  t["softshrink"] = row(softshrink);
  t["hardshrink"] = row(hardshrink);
  t["logsigmoid"] = row([](const Call& c) { return -ops::softplus(-c.x()); });
  t["threshold"] = row([](const Call& c) {
    return ops::where(ops::greater(c.x(), c.number("threshold", 0)), c.x(), c.number("value", 0));
  });
  t["prelu"] = row(prelu);
  t["glu"] = row(glu);
}

void add_binary(BuildTable& t) {
  t["add"] = row([](const Call& c) {
    return c.given("alpha") ? c.x() + c["other"] * c.number("alpha", 1)
                            : ops::add(c.x(), c["other"]);
  });
  t["sub"] = row([](const Call& c) {
    return c.given("alpha") ? c.x() - c["other"] * c.number("alpha", 1)
                            : ops::sub(c.x(), c["other"]);
  });
  t["rsub"] = row([](const Call& c) { return c["other"] - c.x() * c.number("alpha", 1); });
  t["mul"] = binary([](const auto& a, const auto& b) { return ops::mul(a, b); });
  t["div"] = t["true_divide"] = row(div);
  t["floor_divide"] = row([](const Call& c) { return ops::floor(c.x() / c["other"]); });
  t["pow"] = row([](const Call& c) {
    return c.with("exponent", [](const auto& a, const auto& b) { return ops::pow(a, b); });
  });
  t["maximum"] = t["fmax"] = t["clamp_min"] =
      binary([](const auto& a, const auto& b) { return ops::maximum(a, b); });
  t["minimum"] = t["fmin"] = t["clamp_max"] =
      binary([](const auto& a, const auto& b) { return ops::minimum(a, b); });
  t["fmod"] = binary([](const auto& a, const auto& b) { return ops::fmod(a, b); });
  t["remainder"] = binary([](const auto& a, const auto& b) { return ops::remainder(a, b); });
  t["atan2"] = row([](const Call& c) { return ops::atan2(c.x(), c["other"]); });
  t["logaddexp"] = row([](const Call& c) { return c.x() + ops::softplus(c["other"] - c.x()); });
  t["xlogy"] = row([](const Call& c) { return c.x() * ops::log(c["other"]); });
  t["ldexp"] = row(ldexp);
  t["__radd__"] = binary([](const auto& a, const auto& b) { return b + a; });
  t["__rsub__"] = binary([](const auto& a, const auto& b) { return b - a; });
  t["__rmul__"] = binary([](const auto& a, const auto& b) { return b * a; });
  t["__rdiv__"] = binary([](const auto& a, const auto& b) { return b / a; });
  t["__rpow__"] = binary([](const auto& a, const auto& b) { return ops::pow(b, a); });
  t["__rmod__"] = row([](const Call& c) { return ops::remainder(c["other"], c.x()); });
}

void add_logic(BuildTable& t) {
  t["eq"] = binary([](const auto& a, const auto& b) { return ops::equal(a, b); });
  t["ne"] = binary([](const auto& a, const auto& b) { return ops::not_equal(a, b); });
  t["lt"] = binary([](const auto& a, const auto& b) { return ops::less(a, b); });
  t["le"] = binary([](const auto& a, const auto& b) { return ops::less_equal(a, b); });
  t["gt"] = binary([](const auto& a, const auto& b) { return ops::greater(a, b); });
  t["ge"] = binary([](const auto& a, const auto& b) { return ops::greater_equal(a, b); });
  t["logical_and"] = row([](const Call& c) { return ops::logical_and(c.x(), c["other"]); });
  t["logical_or"] = row([](const Call& c) { return ops::logical_or(c.x(), c["other"]); });
  t["logical_xor"] = row([](const Call& c) {
    return ops::not_equal(ops::cast(c.x(), boolean), ops::cast(c["other"], boolean));
  });
  const std::map<std::string, Tensor (*)(TensorArg, TensorArg)> bits{
      {"bitwise_and", ops::bitwise_and},       {"__rand__", ops::bitwise_and},
      {"bitwise_or", ops::bitwise_or},         {"__ror__", ops::bitwise_or},
      {"bitwise_xor", ops::bitwise_xor},       {"__rxor__", ops::bitwise_xor},
      {"bitwise_left_shift", ops::shift_left}, {"bitwise_right_shift", ops::shift_right}};
  for (const auto& [name, f] : bits)
    t[name] = row([f = f](const Call& c) { return f(c.x(), c["other"]); });
}

void add_ternary(BuildTable& t) {
  t["lerp"] = row(lerp);
  t["addcmul"] =
      row([](const Call& c) { return c.x() + c["tensor1"] * c["tensor2"] * c.number("value", 1); });
  t["addcdiv"] =
      row([](const Call& c) { return c.x() + c["tensor1"] / c["tensor2"] * c.number("value", 1); });
  t["clamp"] = row(clamp);
  t["where"] = row([](const Call& c) { return ops::where(c["condition"], c.x(), c["other"]); });
  t["masked_fill"] = row([](const Call& c) {
    return c.has("value") ? ops::where(c["mask"], c["value"], c.x())
                          : ops::where(c["mask"], c.number("value", 0), c.x());
  });
}

}  // namespace

BuildTable elementwise_operators() {
  BuildTable table;
  add_unary(table);
  add_activations(table);
  add_binary(table);
  add_logic(table);
  add_ternary(table);
  return table;
}

}  // namespace sluice::test
