// Gradients of repeat in compiled programs: bits, and the memory of the iterations.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "sluice/compiler/compile.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/session/session.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::test {
namespace {

using transforms::Iterations;

struct Program {
  Ir ir;
  std::vector<D2hStream> results;
};

// One training step of a recurrence: h ← tanh(h·w + b), `trips` times.
Program recurrence(int64_t trips, Iterations iterations, bool loop = true) {
  Program p;
  Graph& body = p.ir.create_empty_graph("body");
  const Tensor h = body.input(f32_spec({64, 64}), "h");
  const Tensor w = body.input(f32_spec({64, 64}), "w");
  body.set_outputs({ops::tanh(ops::matmul(h, w) + body.input(f32_spec({64}), "b"))});
  Graph& net = p.ir.create_empty_graph("net");
  Tensors in{net.input(h.spec(), "h"), net.input(w.spec(), "w"), net.input(f32_spec({64}), "b")};
  Tensor y = in[0];
  if (loop) {
    y = ops::repeat(net, body, trips, in)[0];
  } else {
    for (int64_t i = 0; i < trips; ++i) y = ops::call(net, body, {y, in[1], in[2]})[0];
  }
  net.set_outputs({y});
  const transforms::GradGraphInfo info = transforms::autodiff(net, {.iterations = iterations});
  Graph& main = p.ir.main_graph();
  Tensors variables;
  for (const Tensor& t : in) {
    variables.push_back(main.variable(
        t.spec(), Initializer::normal(0, 0.1).keyed({static_cast<uint32_t>(t.id()), 7}), t.name()));
  }
  const CallSiteInfo call = ops::call_with_info(main, net, variables);
  const Tensors gradients = ops::call(main, info.graph(), {call.output(0)}, info.inputs_dict(call));
  for (const Tensor& t : gradients) p.results.push_back(main.host_store(t, "gradient"));
  p.results.push_back(main.host_store(call.output(0), "y"));
  verify(p.ir);
  return p;
}

std::vector<HostTensor> run(Program& p) {
  Session session(p.ir, {.device = cpu_device({.threads = 2})});
  const auto out = session.run({});
  std::vector<HostTensor> results;
  for (const D2hStream& s : p.results) results.push_back(out[s]);
  return results;
}

TEST(LoopGradients, HaveTheBitsOfCallsAndOfTheInterpreter) {
  for (const int64_t trips : {1, 2, 7}) {
    Program calls = recurrence(trips, Iterations::kKeep, false);
    const std::vector<HostTensor> want = run(calls);
    for (const Iterations iterations : {Iterations::kKeep, Iterations::kRecompute}) {
      Program p = recurrence(trips, iterations);
      const std::vector<HostTensor> got = run(p);
      Interpreter interpreter(p.ir);
      const auto interpreted = interpreter.run({});
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(got[k].same_bits(want[k])) << trips << " " << k;
        EXPECT_TRUE(got[k].same_bits(interpreted[p.results[k]])) << trips << " " << k;
      }
    }
  }
}

std::string plan(const Program& p) {
  return exe::to_text(
      compile(p.ir, compile_options({.device = cpu_device({.threads = 1})})).executable);
}

TEST(LoopGradients, StoreTheIterationsInPlace) {
  const std::string many = plan(recurrence(64, Iterations::kKeep));
  const std::string stack = "bytes " + std::to_string(64 * 64 * 64 * 4) + " ";
  std::string step;
  int stored = 0;
  std::istringstream lines(many);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" kernel ") != std::string::npos) step = line;
    if (line.find("      write ") != 0 || line.find(stack) == std::string::npos) continue;
    if (step.find(" Init ") != std::string::npos) continue;  // Before the loop.
    EXPECT_NE(step.find("RowUpdateInplace"), std::string::npos) << step;
    ++stored;
  }
  EXPECT_EQ(stored, 2);  // The state before and after an iteration.
  const auto steps = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  EXPECT_EQ(steps(many), steps(plan(recurrence(8, Iterations::kKeep))));
}

}  // namespace
}  // namespace sluice::test
