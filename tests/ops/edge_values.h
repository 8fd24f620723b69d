#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"

/// Helpers of tests that compare operators with values written by hand.
namespace sluice::test {

using Doubles = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline HostTensor array(DType dtype, const Doubles& values) {
  return HostTensor::of<double>({static_cast<int64_t>(values.size())}, f64, values).cast(dtype);
}

inline bool is_near(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::fabs(got - want) <= 1e-6 * std::fabs(want);
}

/// Runs body(inputs) and checks each of its results: interpreted in float and double, and compiled.
template <typename Body>
void expect(const std::vector<HostTensor>& inputs, const std::vector<Doubles>& want,
            const Body& body) {
  Ir ir;
  Graph& main = ir.main_graph();
  std::vector<StreamInput> arrays;
  Tensors operands;
  for (const HostTensor& t : inputs) {
    const H2dStream stream = ir.h2d_stream(t.spec(), "x");
    operands.push_back(main.host_load(stream));
    arrays.push_back({stream, t});
  }
  std::vector<D2hStream> shown;
  for (const Tensor& y : body(operands)) shown.push_back(main.host_store(y, "y"));
  ASSERT_EQ(shown.size(), want.size());
  const auto compare = [&](const auto& results, const char* way) {
    for (size_t i = 0; i < shown.size(); ++i) {
      const Doubles got = results[shown[i]].to_doubles();
      ASSERT_EQ(got.size(), want[i].size());
      for (size_t e = 0; e < got.size(); ++e) {
        EXPECT_TRUE(is_near(got[e], want[i][e])) << way << ", result " << i << ", element " << e
                                                 << " is " << got[e] << ", not " << want[i][e];
      }
    }
  };
  compare(Interpreter(ir, Precision::kFloat).run(arrays), "float");
  compare(Interpreter(ir, Precision::kDouble).run(arrays), "double");
  compare(Session(ir, {.device = cpu_device({.threads = 1})}).run(arrays), "compiled");
}

/// Returns the gradients of Σ f(inputs) with respect to the floating-point inputs.
template <typename F>
inline Tensors gradients(const Tensors& inputs, const F& f) {
  Graph& main = inputs[0].graph();
  Ir ir = main.ir();
  Graph& forward = ir.create_empty_graph("f");
  Tensors own;
  for (const Tensor& t : inputs) own.push_back(forward.input(t.spec(), "x"));
  forward.set_outputs({ops::sum(f(own))});
  const auto info = transforms::autodiff(forward);
  const CallSiteInfo call = ops::call_with_info(main, forward, {inputs.begin(), inputs.end()});
  const CallSiteInfo back = ops::call_with_info(
      main, info.graph(), {main.scalar(1, inputs[0].dtype())}, info.inputs_dict(call));
  Tensors all;
  for (size_t i = 0; i < info.outputs().size(); ++i)
    all.push_back(back.output(static_cast<int>(i)));
  return all;
}

}  // namespace sluice::test
