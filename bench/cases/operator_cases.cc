#include <fmt/core.h>

#include <memory>

#include "bench/cases/one_operator.h"

namespace sluice::bench {
namespace {

constexpr double kSeconds = 1e-2;

// One operator on f32 tensors x (and y) of a cube's shape.
struct Operator {
  const char* name;  // Name for pytorch_child.py.
  double bytes;      // Bytes for each element of x that must be read and written.
  double part;       // Goal: part of a copy's speed; 0 where PyTorch's speed is the goal.
  Tensor (*build)(const Tensor& x, const Tensor& y);
};

Tensor spread_rows(const Tensor& x) {
  const Shape& s = x.shape();
  return ops::broadcast_to(ops::slice(x, {0}, {1}, {}, {1}), s);
}
HostTensor permutation(int64_t n) {
  std::vector<int32_t> all(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) all[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7 % n);
  return HostTensor::of<int32_t>({n}, i32, all);
}
Tensor indices_of(const Tensor& x) { return x.graph().constant(permutation(x.shape()[1])); }

Tensor rotated(const Tensor& x, bool interleaved) {
  const Tensor table =
      ops::rotary_table(x.graph(), {.positions = x.shape()[1], .size = x.shape()[2]});
  return ops::rotary(x, table, {.interleaved = interleaved});
}

constexpr double kInRows = 0.8, kStrided = 0.4, kSums = 0.85;

constexpr Operator kOperators[] = {
    {"swap-rows", 8, kInRows,
     [](const Tensor& x, const Tensor&) { return ops::swap_axes(x, 0, 1); }},
    {"transpose", 8, kStrided,
     [](const Tensor& x, const Tensor&) { return ops::swap_axes(x, 1, 2); }},
    {"expand", 4, kInRows, [](const Tensor& x, const Tensor&) { return spread_rows(x); }},
    {"slice", 4, kInRows,
     [](const Tensor& x, const Tensor&) {
       return ops::slice(x, {0}, {x.shape()[1] / 2}, {}, {1});
     }},
    {"slice-step-2", 4, kStrided,
     [](const Tensor& x, const Tensor&) { return ops::slice(x, {0}, {}, {2}, {2}); }},
    {"concat", 16, kInRows,
     [](const Tensor& x, const Tensor& y) {
       return ops::concat({x, y}, 1);
     }},
    {"gather", 8, kInRows,
     [](const Tensor& x, const Tensor&) { return ops::gather(x, indices_of(x), {.axis = 1}); }},
    {"add", 12, kInRows, [](const Tensor& x, const Tensor& y) { return x + y; }},
    {"greater", 9, kInRows, [](const Tensor& x, const Tensor& y) { return ops::greater(x, y); }},
    {"where", 12, kInRows,
     [](const Tensor& x, const Tensor& y) { return ops::where(ops::greater(x, 0.0), x, y); }},
    {"maximum", 12, kInRows,
     [](const Tensor& x, const Tensor& y) {
       return ops::maximum({x, y});
     }},
    {"clip", 8, kInRows,
     [](const Tensor& x, const Tensor&) { return ops::clip(x, {.min = -0.5, .max = 0.5}); }},
    {"floor", 8, kInRows, [](const Tensor& x, const Tensor&) { return ops::floor(x); }},
    {"exp", 8, 0, [](const Tensor& x, const Tensor&) { return ops::exp(x); }},
    {"log1p", 8, 0, [](const Tensor& x, const Tensor&) { return ops::log1p(ops::abs(x)); }},
    {"erf", 8, 0, [](const Tensor& x, const Tensor&) { return ops::erf(x); }},
    {"tanh", 8, 0, [](const Tensor& x, const Tensor&) { return ops::tanh(x); }},
    {"swish", 8, 0, [](const Tensor& x, const Tensor&) { return ops::swish(x); }},
    {"softplus", 8, 0, [](const Tensor& x, const Tensor&) { return ops::softplus(x); }},
    {"pow", 12, 0, [](const Tensor& x, const Tensor& y) { return ops::pow(ops::abs(x), y); }},
    {"log2", 8, 0, [](const Tensor& x, const Tensor&) { return ops::log2(ops::abs(x)); }},
    {"sin", 8, 0, [](const Tensor& x, const Tensor&) { return ops::sin(x * 10.0); }},
    {"tan", 8, 0, [](const Tensor& x, const Tensor&) { return ops::tan(x); }},
    {"asin", 8, 0, [](const Tensor& x, const Tensor&) { return ops::asin(x); }},
    {"cosh", 8, 0, [](const Tensor& x, const Tensor&) { return ops::cosh(x); }},
    {"asinh", 8, 0, [](const Tensor& x, const Tensor&) { return ops::asinh(x); }},
    {"atanh", 8, 0, [](const Tensor& x, const Tensor&) { return ops::atanh(x); }},
    {"atan2", 12, 0, [](const Tensor& x, const Tensor& y) { return ops::atan2(x, y); }},
    {"fmod", 12, 0, [](const Tensor& x, const Tensor& y) { return ops::fmod(x, y); }},
    {"half-chain", 10, kInRows,
     [](const Tensor& x, const Tensor& y) {
       const Tensor a = ops::cast(x, f16), b = ops::cast(y, f16);
       return ops::maximum(a * b + a, b);
     }},
    {"pad-constant", 8, kInRows,
     [](const Tensor& x, const Tensor&) {
       return ops::pad(x, {{}, {1, 1}, {}});
     }},
    {"pad-reflect", 8, kStrided,
     [](const Tensor& x, const Tensor&) {
       return ops::pad(x, {{}, {1, 1}, {1, 1}}, ops::PadMode::kReflect);
     }},
    {"flip", 8, kStrided, [](const Tensor& x, const Tensor&) { return ops::flip(x, {2}); }},
    {"take-along-axis", 12, 0,
     [](const Tensor& x, const Tensor&) {
       const int64_t n = x.shape()[2];
       const Tensor row = x.graph().constant(permutation(n));
       return ops::take_along_axis(x, ops::broadcast_to(row, x.shape()));
     }},
    {"cumsum-last", 8, 0,
     [](const Tensor& x, const Tensor&) { return ops::cumsum(x, {.axis = 2}); }},
    {"cumsum-middle", 8, 0,
     [](const Tensor& x, const Tensor&) { return ops::cumsum(x, {.axis = 1}); }},
    {"sort", 12, 0, [](const Tensor& x, const Tensor&) { return ops::sort(x).values; }},
    {"sum-last", 4, kSums,
     [](const Tensor& x, const Tensor&) { return ops::sum(x, {.axes = {2}}); }},
    {"sum-middle", 4, kSums,
     [](const Tensor& x, const Tensor&) { return ops::sum(x, {.axes = {1}}); }},
    {"max-middle", 4, kSums,
     [](const Tensor& x, const Tensor&) { return ops::max(x, {.axes = {1}}); }},
    {"max-middle-gradient", 12, 0,
     [](const Tensor& x, const Tensor&) {
       const Tensor top = ops::max(x, {.axes = {1}});
       return ops::reduce_max_grad(top, x, top, {.axes = {1}});
     }},
    {"softmax", 8, 0.7, [](const Tensor& x, const Tensor&) { return ops::softmax(x); }},
    {"softmax-middle", 8, 0, [](const Tensor& x, const Tensor&) { return ops::softmax(x, 1); }},
    {"rms-norm", 8, 0, [](const Tensor& x, const Tensor&) { return ops::rms_norm(x); }},
    {"rms-norm-gradient", 12, 0,
     [](const Tensor& x, const Tensor& y) {
       return ops::emit(ops::rms_norm_grad_def(), {x, y}, to_attrs(ops::RmsNormOptions{}))[0];
     }},
    {"rotary", 8, 0, [](const Tensor& x, const Tensor&) { return rotated(x, false); }},
    {"rotary-pairs", 8, 0, [](const Tensor& x, const Tensor&) { return rotated(x, true); }},
    {"logsumexp-last", 4, 0,
     [](const Tensor& x, const Tensor&) { return ops::logsumexp(x, {.axes = {2}}); }},
    {"logsumexp-middle", 4, 0,
     [](const Tensor& x, const Tensor&) { return ops::logsumexp(x, {.axes = {1}}); }},
    {"argmax-last", 4, 0,
     [](const Tensor& x, const Tensor&) { return ops::argmax(x, {.axis = 2}); }},
    {"argmax-middle", 4, 0,
     [](const Tensor& x, const Tensor&) { return ops::argmax(x, {.axis = 1}); }},
    {"dropout", 8, 0,
     [](const Tensor& x, const Tensor&) {
       const Tensor seed = x.graph().constant(HostTensor::of<uint32_t>({2}, u32, {1, 2}));
       return ops::dropout(x, seed, 0.1);
     }},
};

// Cubes of 256 KiB and of 16 MiB.
struct Size {
  const char* name;
  Shape shape;
};
std::vector<Size> sizes() { return {{"256 KiB", {16, 64, 64}}, {"16 MiB", {64, 256, 256}}}; }

// Adds the operator on variables of the shape.
void build(Graph& main, const Operator& op, const Shape& shape) {
  const auto variable = [&](uint32_t number, const char* name) {
    return main.variable(TensorSpec{shape, f32, {}}, Initializer::uniform(-1, 1).keyed({5, number}),
                         name);
  };
  keep(op.build(variable(1, "x"), variable(2, "y")));
}

Case operator_case(Machine& machine, const Operator& op, const Size& size, int threads) {
  const Shape& s = size.shape;
  const double bytes = op.bytes * static_cast<double>(s.elements());
  std::vector<Goal> goals{{Goal::Of::kPyTorch, 1}};
  if (op.part > 0) goals.push_back({Goal::Of::kPart, op.part});
  return {.group = "operator",
          .name = fmt::format("{}, {}", op.name, size.name),
          .threads = threads,
          .unit = Unit::kGigabytes,
          .work = bytes,
          .goals = goals,
          .pytorch = fmt::format("operator {} {} {} {} {}", op.name, s[0], s[1], s[2], threads),
          .start = [&machine, op, s, threads, bytes]() -> std::function<Round()> {
            auto running = std::make_shared<OneOperator>([&](Graph& main) { build(main, op, s); },
                                                         static_cast<int64_t>(bytes), threads);
            return
                [&machine, running, bytes] { return running->measure(machine, bytes, kSeconds); };
          }};
}

}  // namespace

std::vector<Case> operator_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const Operator& op : kOperators) {
    for (const Size& size : sizes()) {
      for (int threads = 1; threads <= kMaxThreads; ++threads)
        cases.push_back(operator_case(machine, op, size, threads));
    }
  }
  return cases;
}

}  // namespace sluice::bench
