// Tests that the operator of docs/howto/add_an_op.md does what the page says.
#include <gtest/gtest.h>

#include "sluice/interp/interpreter.h"
#include "sluice/ops/roll.h"
#include "sluice/transforms/autodiff.h"

namespace sluice {
namespace {

TEST(AddAnOp, RollRunsAndHasItsGradient) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream({{5}, f32, {}}, "x");
  const Tensor x = main.host_load(in);
  Graph& roll = ir.create_graph(
      "roll", [](Graph&, Tensor t) { return ops::roll(t, {.shift = 2}); }, x);
  const auto gradient = transforms::autodiff(roll);
  const D2hStream forward = main.host_store(ops::call(main, roll, {x})[0], "forward");
  const D2hStream backward = main.host_store(ops::call(main, gradient.graph(), {x})[0], "backward");

  Interpreter interpreter(ir);
  const auto results = interpreter.run({{in, HostTensor::of<float>({5}, f32, {1, 2, 3, 4, 5})}});
  EXPECT_TRUE(results[forward].same_bits(HostTensor::of<float>({5}, f32, {4, 5, 1, 2, 3})));
  EXPECT_TRUE(results[backward].same_bits(HostTensor::of<float>({5}, f32, {3, 4, 5, 1, 2})));
}

TEST(AddAnOp, RollRefusesWhatItsConstraintExcludes) {
  Ir ir;
  Graph& g = ir.create_empty_graph("g");
  const Tensor x = g.input({{2}, f64, {}}, "x");
  try {
    ops::roll(x);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("roll (C1)"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace sluice
