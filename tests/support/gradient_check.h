#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sluice/base/rng.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// Returns a double array of pseudo-random values in [-1, 1].
inline HostTensor random_array(const Shape& shape, uint64_t seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const double x =
        std::sin(12.9898 * static_cast<double>(i + 1) + 78.233 * static_cast<double>(seed + 1)) *
        43758.5453;
    values.push_back(2 * (x - std::floor(x)) - 1);
  }
  return HostTensor::of<double>(shape, f64, values);
}

/// Returns arrays for a graph's inputs: random if floating point, else zeros.
inline std::vector<HostTensor> random_inputs(const Graph& graph, uint64_t seed = 1) {
  std::vector<HostTensor> arrays;
  for (const Tensor& t : graph.inputs()) {
    arrays.push_back(is_float(t.dtype()) ? random_array(t.shape(), seed++) : HostTensor(t.spec()));
  }
  return arrays;
}

/// Makes a graph that calls the forward and the gradient graph. It takes the inputs of the forward
/// graph, then the provided gradients. It returns the computed gradients.
inline Graph& gradient_step(const GradGraphInfo& info) {
  Graph& forward = info.forward_graph();
  Graph& step = forward.ir().create_empty_graph("step");
  Tensors inputs;
  for (const Tensor& t : forward.inputs()) inputs.push_back(step.input(t.spec(), t.name()));
  Tensors grads;
  for (const ExpectedConnection& c : info.expected_inputs()) {
    if (c.type == Connection::kFwdGrad)
      grads.push_back(step.input(c.fwd_tensor.spec(), "d_" + c.fwd_tensor.name()));
  }
  const CallSiteInfo call = ops::call_with_info(step, forward, inputs);
  const CallSiteInfo back = ops::call_with_info(step, info.graph(), grads, info.inputs_dict(call));
  step.set_outputs(back.outputs());
  return step;
}

/// Compares every gradient of `info` with central differences of the forward graph, in double.
/// Provided gradients must be of outputs, and required ones of inputs.
inline void check_gradients(const GradGraphInfo& info, std::vector<HostTensor> inputs,
                            double tolerance = 1e-6) {
  Graph& forward = info.forward_graph();
  verify(forward.ir());
  Graph& step = gradient_step(info);
  verify(forward.ir());
  std::vector<HostTensor> arguments = inputs;
  std::vector<std::pair<size_t, HostTensor>> weights;  // {output, its gradient}
  for (size_t k = 0; k < info.expected_inputs().size(); ++k) {
    const auto& [type, t] = info.expected_inputs()[k];
    if (type != Connection::kFwdGrad) continue;
    const auto& outs = forward.output_ids();
    size_t index = static_cast<size_t>(std::find(outs.begin(), outs.end(), t.id()) - outs.begin());
    for (const auto& [other, array] : weights) {  // A repeated output: use its next index.
      if (other == index)
        index = static_cast<size_t>(
            std::find(outs.begin() + static_cast<int64_t>(index) + 1, outs.end(), t.id()) -
            outs.begin());
    }
    ASSERT_LT(index, outs.size());
    arguments.push_back(random_array(t.shape(), 1000 + k));
    weights.emplace_back(index, arguments.back());
  }
  Interpreter interpreter(forward.ir(), Precision::kDouble);
  const std::vector<HostTensor> gradients = interpreter.evaluate(step, arguments);
  const auto objective = [&](const std::vector<HostTensor>& at) {
    const std::vector<HostTensor> results = interpreter.evaluate(forward, at);
    double sum = 0;
    for (const auto& [index, weight] : weights) {
      const std::vector<double> y = results[index].to_doubles();
      const std::vector<double> w = weight.to_doubles();
      for (size_t i = 0; i < y.size(); ++i) sum += w[i] * y[i];
    }
    return sum;
  };
  for (size_t k = 0; k < info.expected_outputs().size(); ++k) {
    const Tensor& t = info.expected_outputs()[k].fwd_tensor;
    const auto& ins = forward.input_ids();
    const auto index = static_cast<size_t>(std::find(ins.begin(), ins.end(), t.id()) - ins.begin());
    ASSERT_LT(index, ins.size());
    const std::vector<double> got = gradients[k].to_doubles();
    for (size_t i = 0; i < got.size(); ++i) {
      const double h = 1e-5;
      double& x = inputs[index].as<double>()[i];
      const double x0 = x;
      x = x0 + h;
      const double up = objective(inputs);
      x = x0 - h;
      const double down = objective(inputs);
      x = x0;
      const double want = (up - down) / (2 * h);
      EXPECT_NEAR(got[i], want, tolerance * std::max(1.0, std::abs(want)))
          << t.name() << "[" << i << "]";
    }
  }
}

/// Returns the message of the Error{kUsage} that `f` throws. The test fails if it throws none.
template <typename F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::transforms
