#pragma once
#include <gtest/gtest.h>

#include <map>

#include "../property/random_graph_ops.h"
#include "../property/random_graph_run.h"
#include "sluice/compiler/compile.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/text.h"
#include "sluice/ir/verify.h"
#include "sluice/sluice.h"

namespace sluice::test {

using property::executed;
using property::interpreted;
using property::Outcome;

inline constexpr ops::MatmulOptions kOfTransposed{.lhs_transposed = true};
inline constexpr ops::MatmulOptions kByTransposed{.rhs_transposed = true};

/// Effects of fusion and layouts on a plan.
struct Effect {
  int fused = 0;                               ///< Kernels with several ops.
  int max = 0;                                 ///< Largest number of ops in a kernel.
  int copies = 0;                              ///< Kernels that copy or convert.
  std::map<std::string, std::string> layouts;  ///< Layout of each variable, by path.
  std::map<std::string, int> ops;              ///< Kernels of each operator.
};

inline Effect effect_of(const exe::Executable& executable) {
  Effect effect;
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
      if (kernel == nullptr) continue;
      effect.fused += kernel->stages.size() > 1;
      effect.max = std::max(effect.max, static_cast<int>(kernel->stages.size()));
      effect.copies += kernel->key == "cpu.copy";
      ++effect.ops[kernel->op];
    }
  }
  for (const exe::VariablePlan& v : executable.variables) effect.layouts[v.path] = v.layout;
  return effect;
}

class Fusion : public testing::Test {
 protected:
  Tensor variable(Shape shape, const std::string& name) {
    const HostTensor first = property::random_array(f32_spec(std::move(shape)), ++seed_);
    return main.variable(first, name);
  }
  Tensor input(Shape shape) {
    const TensorSpec spec = f32_spec(std::move(shape));
    return main.host_load(program.ir.h2d_stream(spec, "in" + std::to_string(++seed_)));
  }
  void show(const Tensor& t) { t.graph().host_store(t, "out" + std::to_string(++seed_)); }

  /// Stores the results of `body` and the gradients of all its inputs. Gradients of the first
  /// result are given.
  void differentiate(const std::vector<Tensor>& operands,
                     const std::function<Tensors(const Tensors&)>& body) {
    Graph& forward = program.ir.create_empty_graph("forward");
    Tensors inputs;
    for (const Tensor& t : operands) inputs.push_back(forward.input(t.spec()));
    forward.set_outputs(body(inputs));
    const Tensor y = forward.outputs()[0];
    const auto info = transforms::autodiff(forward, {.grads_provided = Tensors{y}});
    const CallSiteInfo call = ops::call_with_info(main, forward, operands);
    const Tensors grads = ops::call(main, info.graph(), {input(y.shape())}, info.inputs_dict(call));
    for (size_t i = 0; i < forward.original_outputs().size(); ++i) show(call.outputs()[i]);
    for (const Tensor& t : grads) show(t);
  }

  /// Runs the program in every way and checks its bits. Returns the effects of a compilation with
  /// all passes.
  Effect check(int devices = 1) {
    if (program.runs.empty()) program.runs = {"main", "main"};
    verify(program.ir);
    const Outcome want = interpreted(program);
    std::vector<property::Way> ways{
        {.threads = 1}, {.threads = 3}, {.threads = 1, .interleaved = true}};
    std::vector<std::string> optional;
    for (const PassDoc& pass : compiler_passes()) {
      if (!pass.optional) continue;
      optional.push_back(pass.name);
      ways.push_back({.threads = 2, .disable = {pass.name}});
    }
    ways.push_back({.threads = 2, .disable = optional});
    ways.push_back({.threads = 2, .disable = {"inline", "dead-code"}});
    ways.push_back({.threads = 2, .disable = {"dead-code", "aliasing"}});
    ways.push_back({.threads = 2, .disable = {"fuse", "aliasing", "inline"}});
    for (property::Way& way : ways) {
      way.devices = devices;
      try {
        EXPECT_EQ(property::difference(want, executed(program, way)), "") << way.text();
      } catch (const Error& e) {
        ADD_FAILURE() << way.text() << ": " << e.what();
      }
    }
    const Compiled compiled = property::compiled(program.ir, devices);
    const std::string text = exe::to_text(compiled.executable);
    EXPECT_EQ(exe::to_text(exe::parse_text(text, "plan")), text);
    EXPECT_TRUE(exe::parse_text(text, "plan") == compiled.executable);
    const Outcome shown = interpreted(program, property::Remote::kShown);
    EXPECT_EQ(property::difference(shown, property::by_values(program, compiled)), "")
        << "by values";
    if (devices == 1) check_budget(want);
    if (testing::Test::HasFailure()) std::cout << property::text(program.ir) << text;
    return effect_of(compiled.executable);
  }

  /// Checks that a budget equal to the peak suffices, with the same results, and that one byte less
  /// does not.
  void check_budget(const Outcome& want) {
    const int64_t peak =
        Session(program.ir, {.device = cpu_device({.threads = 1})}).planned_bytes();
    property::Way way{.threads = 1};
    way.device = cpu_device({.memory = peak, .threads = 1});
    EXPECT_EQ(property::difference(want, executed(program, way)), "") << "budget " << peak;
    EXPECT_THROW(Session(program.ir, {.device = cpu_device({.memory = peak - 1, .threads = 1})}),
                 Error);
  }

  property::RandomProgram program;
  Graph& main = program.ir.main_graph();

 private:
  uint64_t seed_ = 0;
};

}  // namespace sluice::test
