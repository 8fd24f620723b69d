// Each operator has a gradient that agrees with central differences, or its gradient is 0 by
// definition, or autodiff refuses it by name. So does each gradient of a gradient.
#include <gtest/gtest.h>

#include <set>

#include "../support/gradient_check.h"
#include "sluice/interp/interpreter.h"
#include "sluice/interp/sample_inputs.h"
#include "sluice/ops/ops.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/values.h"

namespace sluice {
namespace {

using namespace transforms;  // NOLINT

// Operators through which autodiff refuses to pass a gradient. docs/operators.md lists them.
const std::set<std::string> kRefused{
    "accumulate_",           "accumulator_scale_",     "adam_updater",  "adam_updater_decay",
    "adam_var_update",       "max_pool_grad",          "reduce_chunks", "reduce_total",
    "replicated_all_reduce", "replicated_all_reduce_", "scaled_add",    "scaled_add_",
    "strided_matmul",
};

// A graph of the op of a sample, whose outputs are the floating-point outputs of the op.
Graph& graph_of(Ir& ir, const OpDef& def, const Sample& sample) {
  Graph& graph = ir.create_empty_graph("f");
  std::vector<TensorArg> inputs;
  for (const TensorSpec& s : sample.inputs) inputs.emplace_back(graph.input(s));
  for (const Tensor& t : graph.emit(def, inputs, options_of(def, sample.options))) {
    if (is_float(t.dtype())) graph.add_output(t);
  }
  return graph;
}

Tensors floats(const Tensors& all) {
  Tensors result;
  for (const Tensor& t : all) {
    if (is_float(t.dtype())) result.push_back(t);
  }
  return result;
}

double dot(const HostTensor& a, const HostTensor& b) {
  const auto x = a.to_doubles();
  const auto y = b.to_doubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Compares the derivative along one direction with central differences, in double.
void check_direction(const GradGraphInfo& info, const std::vector<HostTensor>& inputs) {
  const Graph& forward = info.forward_graph();
  Interpreter interpreter(forward.ir(), Precision::kDouble);
  std::vector<HostTensor> seeds;
  for (const Tensor& t : floats(forward.original_outputs()))
    seeds.push_back(random_array(t.shape(), 100 + seeds.size()));
  std::vector<HostTensor> arguments = inputs;
  arguments.insert(arguments.end(), seeds.begin(), seeds.end());
  const auto gradients = interpreter.evaluate(gradient_step(info), arguments);

  constexpr double kStep = 1e-5;
  double actual = 0;
  auto raised = inputs;
  auto lowered = inputs;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const size_t i = position(forward.input_ids(), info.expected_outputs()[k].fwd_tensor);
    const HostTensor direction = random_array(inputs[i].shape(), 200 + i);
    actual += dot(gradients[k], direction);
    for (size_t e = 0; e < direction.as<double>().size(); ++e) {
      raised[i].as<double>()[e] += kStep * direction.as<double>()[e];
      lowered[i].as<double>()[e] -= kStep * direction.as<double>()[e];
    }
  }
  const auto objective = [&](const std::vector<HostTensor>& at) {
    const auto results = interpreter.evaluate(forward, at);
    double sum = 0;
    for (size_t j = 0; j < seeds.size(); ++j) sum += dot(seeds[j], results[j]);
    return sum;
  };
  const double expected = (objective(raised) - objective(lowered)) / (2 * kStep);
  EXPECT_NEAR(actual, expected, 1e-6 * std::max(1.0, std::fabs(expected)));
}

std::vector<HostTensor> values_of(const Sample& sample) {
  std::vector<HostTensor> values;
  for (const HostTensor& t : draw_inputs(sample))
    values.push_back(to_working(t, Precision::kDouble));
  return values;
}

class Gradients : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& def() const { return *GetParam(); }

  // Whether autodiff succeeds. If not, the error must name an operator of kRefused.
  template <typename F>
  bool succeeds(F&& differentiate) {
    try {
      differentiate();
      return true;
    } catch (const Error& e) {
      const std::string text = e.what();
      refused_ = std::any_of(kRefused.begin(), kRefused.end(), [&](const std::string& name) {
        return text.find(": " + name + " (") != std::string::npos;
      });
      EXPECT_TRUE(refused_) << text;
      EXPECT_NE(text.find("has no gradient with respect to its operand"), std::string::npos)
          << text;
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      return false;
    }
  }
  bool refused_ = false;
};

TEST_P(Gradients, AreRightZeroByDefinitionOrRefused) {
  for (const Sample& sample : def().samples) {
    SCOPED_TRACE(describe(def(), sample));
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (!is_float(sample.inputs[i].dtype) || def().zero_gradient(static_cast<int>(i))) continue;
      SCOPED_TRACE("input " + std::to_string(i));
      Ir ir;
      Graph& f = graph_of(ir, def(), sample);
      if (f.output_ids().empty()) continue;
      std::optional<GradGraphInfo> info;
      const auto differentiate = [&] {
        info = autodiff(
            f, {.grads_required = Tensors{f.inputs()[i]}, .unreachable = Unreachable::kZeros});
      };
      if (!succeeds(differentiate)) continue;
      // generated_ops_test checks operators with a rule. The constants of a formula are rounded to
      // the dtype.
      if (sample.gradient && def().grad == nullptr && sample.inputs[i].dtype == f32)
        check_direction(*info, values_of(sample));
    }
  }
  EXPECT_EQ(refused_, kRefused.contains(def().name)) << def().name;
}

TEST_P(Gradients, OfGradientsAreRightOrRefused) {
  if (!def().aliases.empty()) return;  // A gradient may need what an in-place op overwrites.
  int checked = 0;
  for (const Sample& sample : def().samples) {
    int64_t elements = 0;
    Tensors required;
    for (const TensorSpec& s : sample.inputs) elements += s.elements();
    if (!sample.gradient || elements > 60 || elements == 0 || checked == 3) continue;
    SCOPED_TRACE(describe(def(), sample));
    Ir ir;
    Graph& f = graph_of(ir, def(), sample);
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (is_float(sample.inputs[i].dtype) && !def().zero_gradient(static_cast<int>(i)))
        required.push_back(f.inputs()[i]);
    }
    if (f.output_ids().empty() || required.empty() || kRefused.contains(def().name)) continue;
    const GradGraphInfo first =
        autodiff(f, {.grads_required = required, .unreachable = Unreachable::kZeros});
    Graph& step = gradient_step(first);
    // The step reads the inputs of the op and a gradient of each output.
    Tensors differentiable;
    for (size_t i = 0; i < step.input_ids().size(); ++i) {
      const bool is_zero = i < sample.inputs.size() && def().zero_gradient(static_cast<int>(i));
      if (is_float(step.inputs()[i].dtype()) && !is_zero)
        differentiable.push_back(step.inputs()[i]);
    }
    std::optional<GradGraphInfo> second;
    const auto differentiate = [&] {
      second =
          autodiff(step, {.grads_required = differentiable, .unreachable = Unreachable::kZeros});
    };
    ++checked;
    if (!succeeds(differentiate)) continue;
    std::vector<HostTensor> values = values_of(sample);
    for (size_t i = values.size(); i < step.input_ids().size(); ++i)
      values.push_back(random_array(step.inputs()[i].shape(), 300 + i));
    check_direction(*second, values);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gradients, testing::ValuesIn(ops::all_ops()),
                         [](const auto& info) { return info.param->type; });

// 2·s + gather_grad(s, 0 1 2) is 3·s.
TEST(GradientsOfPrograms, PassOperatorsOfGradients) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f",
      [](Graph& g, Tensor s) {
        const Tensor indices = g.constant(HostTensor::of<int32_t>({3}, i32, {0, 1, 2}));
        return s * 2.0 + ops::gather_grad(s, indices, {.axis = 0, .size = 3});
      },
      f32_spec({3}));
  const GradGraphInfo info = autodiff(f);
  const HostTensor one = HostTensor::of<float>({3}, f32, {1, 1, 1});
  EXPECT_EQ(Interpreter(ir).evaluate(gradient_step(info), {one, one})[0].to_doubles(),
            (std::vector<double>{3, 3, 3}));
}

// The second derivative of tanh(x) + x³ at 0.5.
TEST(GradientsOfPrograms, AreDifferentiatedAgain) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return ops::tanh(x) + x * x * x; }, f32_spec({}));
  Graph& step = gradient_step(autodiff(f));
  const GradGraphInfo second = autodiff(step, {.grads_required = Tensors{step.inputs()[0]}});
  const HostTensor one = HostTensor::scalar(1);
  const auto result =
      Interpreter(ir).evaluate(gradient_step(second), {HostTensor::scalar(0.5f), one, one});
  const double t = std::tanh(0.5);
  EXPECT_NEAR(result[0].to_doubles()[0], 3 - 2 * t * (1 - t * t), 1e-6);
}

TEST(GradientsOfPrograms, NameTheOperatorWithoutAGradient) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return x + ops::scaled_add(x, x, 1, 2); }, f32_spec({3}));
  const std::string text = usage_error([&] { autodiff(f); });
  EXPECT_NE(text.find("autodiff of graph f_subgraph(0): scaled_add (ScaledAdd.100, "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("has no gradient with respect to its operand x, and that of 'x' would pass "
                      "it; use other operators, or detach('x') if its gradient must be 0"),
            std::string::npos)
      << text;
  EXPECT_EQ(ir.graph_count(), 1);
}

}  // namespace
}  // namespace sluice
