/// Lesson 17: an operator of one's own. lerp3 moves from a over b to c while t goes from 0 to 2. It
/// has a gradient, fuses with its neighbours, and is tested like the operators of the library.
#include <fmt/core.h>

#include <sluice/interp/check_operator.h>
#include <sluice/ops/register_op.h>
#include <sluice/sluice.h>

using namespace sluice;

namespace {

Tensors gradient(GradContext& g);

const OpDef& lerp3_def() {
  static const OpDef& def = ops::register_op(
      ops::elementwise_op<4>("Lerp3", "lerp3", {"a", "b", "c", "t"},
                             "The linear interpolation between a (t = 0), b (t = 1) and c (t = 2).",
                             gradient, [](auto a, auto b, auto c, auto t) {
                               const auto left = a + t * (b - a);
                               const auto right = b + (t - 1) * (c - b);
                               return t < 1 ? left : right;
                             }));
  return def;
}

Tensor lerp3(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& t) {
  return ops::emit_one(lerp3_def(), {a, b, c, t});
}

Tensors gradient(GradContext& g) {
  const Tensor a = g.input(0), b = g.input(1), c = g.input(2), t = g.input(3), y = g.grad(0);
  const Tensor left = ops::less(t, 1.0);
  const auto to = [&](int i, const Tensor& l, const Tensor& r) {
    return ops::reduce_to(y * ops::where(left, l, r), g.op().input(i).shape);
  };
  return {to(0, 1.0 - t, t * 0.0), to(1, t, 2.0 - t), to(2, t * 0.0, t - 1.0), to(3, b - a, c - b)};
}

}  // namespace

int main() {
  check_operator(lerp3_def());  // Values, constraints and gradients, on the samples.

  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream({{5}, f32, {}}, "t");
  const Tensor scalar[] = {main.scalar(1, f32), main.scalar(3, f32), main.scalar(-1, f32)};
  const Tensor y = lerp3(scalar[0], scalar[1], scalar[2], main.host_load(in)) * 10.0;
  const D2hStream out = main.host_store(y, "y");
  Session session(ir, {.device = cpu_device()});
  const HostTensors results =
      session.run({{in, HostTensor::of<float>({5}, f32, {0, 0.5, 1, 1.5, 2})}});
  for (const float v : results[out].as<float>()) fmt::print("{} ", v);
  fmt::print("\n");
}
