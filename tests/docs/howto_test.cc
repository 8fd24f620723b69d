// Tests that the operator of docs/howto/add_an_op.md does what the page describes.
#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/exe/executable.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ops/rotate.h"
#include "sluice/sluice.h"
#include "sluice/transforms/autodiff.h"

namespace sluice {
namespace {

TEST(AddAnOp, RotateRunsAndHasItsGradient) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream({{5}, f32, {}}, "x");
  const Tensor x = main.host_load(in);
  Graph& rotate = ir.create_graph(
      "rotate", [](Graph&, Tensor t) { return ops::rotate(t, {.shift = 2}); }, x);
  const auto gradient = transforms::autodiff(rotate);
  const D2hStream forward = main.host_store(ops::call(main, rotate, {x})[0], "forward");
  const D2hStream backward = main.host_store(ops::call(main, gradient.graph(), {x})[0], "backward");

  Interpreter interpreter(ir);
  const auto results = interpreter.run({{in, HostTensor::of<float>({5}, f32, {1, 2, 3, 4, 5})}});
  EXPECT_TRUE(results[forward].same_bits(HostTensor::of<float>({5}, f32, {4, 5, 1, 2, 3})));
  EXPECT_TRUE(results[backward].same_bits(HostTensor::of<float>({5}, f32, {3, 4, 5, 1, 2})));
}

// Returns the keys of the kernels that run an op of this type, alone or as a stage.
std::vector<std::string> kernels_of(const exe::Executable& executable, const std::string& type) {
  std::vector<std::string> keys;
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
      if (kernel == nullptr) continue;
      const bool is_stage = std::any_of(kernel->stages.begin(), kernel->stages.end(),
                                        [&](const exe::Stage& s) { return s.op == type; });
      if (kernel->op == type || is_stage) keys.push_back(kernel->key);
    }
  }
  return keys;
}

// Runs `make(x)` in a session and in the interpreter, and compares the bits. Returns the keys of
// the kernels that run the session's rotations.
std::vector<std::string> run_rotate(const TensorSpec& spec, Tensor (*make)(Tensor)) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream({spec.shape, f32, {}}, "x");
  Tensor x = main.host_load(in);
  if (spec.dtype != f32) x = ops::cast(x, spec.dtype);
  const D2hStream out = main.host_store(make(x), "y");
  std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25F - 3;
  const HostTensor array = HostTensor::of<float>(spec.shape, f32, values);
  Session session(ir, {.device = cpu_device({.threads = 2})});
  Interpreter interpreter(ir);
  EXPECT_TRUE(session.run({{in, array}})[out].same_bits(interpreter.run({{in, array}})[out]));
  return kernels_of(session.executable(), "Rotate");
}

TEST(AddAnOp, RotateHasAFastKernelWithTheSameBits) {
  const auto one = [](Tensor x) { return ops::rotate(x, {.shift = -4}); };
  EXPECT_EQ(run_rotate({{40, 70}, f32, {}}, one), std::vector<std::string>{"cpu.rows"});
  // One kernel casts and rotations.
  EXPECT_EQ(run_rotate({{40, 70}, f16, {}}, one), std::vector<std::string>{"cpu.fused"});
  const auto chain = [](Tensor x) { return ops::rotate(x * 2.0, {.shift = 3}) + 1.0; };
  EXPECT_EQ(run_rotate({{40, 70}, f32, {}}, chain), std::vector<std::string>{"cpu.fused"});
}

TEST(AddAnOp, RotateRefusesWhatItsConstraintExcludes) {
  Ir ir;
  Graph& g = ir.create_empty_graph("g");
  const Tensor x = g.input({{2}, f64, {}}, "x");
  try {
    ops::rotate(x);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("rotate (C1)"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace sluice
