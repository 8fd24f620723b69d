// Random graphs with in-place updates, views, nested calls and conditionals. Each gradient is
// compared with central differences. If autodiff reports an error, the graphs must be unchanged.
#include <random>

#include "sluice/ir/ir.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/transforms/recompute.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

class Generator {
 public:
  Generator(Ir& ir, uint32_t seed) : ir_(ir), random_(seed) {}

  Graph& graph(int depth) {
    std::vector<Graph*> callees;
    for (int i = 0; depth > 0 && i < 2; ++i) callees.push_back(&graph(depth - 1));
    Graph& g = ir_.create_empty_graph("random");
    Tensors values{
        g.input(f32_spec({2, 2}), "x"),
        g.input(f32_spec({2, 2}), "y", pick(4) == 0 ? Pass::kByReference : Pass::kByValue),
        g.input(f32_spec({2}), "b")};
    const int length = 3 + pick(6);
    for (int i = 0; i < length; ++i) add_op(g, values, callees);
    g.add_output(values.back());
    if (pick(2) == 0)
      g.add_output(values[static_cast<size_t>(pick(static_cast<int>(values.size())))]);
    // The first output has shape (2, 2) so that calls can use it.
    g.set_outputs([&] {
      Tensors outs{square(g.outputs()[0])};
      for (size_t i = 1; i < g.outputs().size(); ++i) outs.push_back(g.outputs()[i]);
      return outs;
    }());
    return g;
  }

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Tensor square(const Tensor& t) {
    if (t.shape() == Shape{2, 2}) return t;
    if (t.elements() == 4) return ops::reshape(t, {2, 2});
    return t * ops::init(t.graph(), f32_spec({2, 2}), 0.5);
  }
  Tensor any(const Tensors& values) {
    const int n = static_cast<int>(values.size());
    return values[static_cast<size_t>(pick(2) == 0 ? n - 1 - pick(std::min(n, 3)) : pick(n))];
  }

  void add_op(Graph& g, Tensors& values, const std::vector<Graph*>& callees) {
    const Tensor a = any(values);
    switch (pick(callees.empty() ? 13 : 16)) {
      case 0:
        values.push_back(square(a) + square(any(values)));
        break;
      case 1:
        values.push_back(square(a) * square(any(values)));
        break;
      case 2:
        values.push_back(ops::matmul(square(a), square(any(values))));
        break;
      case 3:
        values.push_back(ops::tanh(a));
        break;
      case 4:
        values.push_back(ops::gelu(a));
        break;
      case 5:
        values.push_back(square(a) * 0.5 + values[2]);
        break;
      case 6:
        values.push_back(ops::reshape(square(a), {4}));
        break;
      case 7:
        values.push_back(ops::reshape_(a, {a.elements()}));
        break;
      case 8:
        values.push_back(ops::gelu_(a));
        break;
      case 9:
        values.push_back(ops::add_(
            a, a.elements() == 4 ? ops::reshape(any_of(values, 4), a.shape()) : values[2]));
        break;
      case 10:
        values.push_back(ops::identity(a));
        break;
      case 11:
        values.push_back(ops::sum(a) * values[0]);
        break;
      case 12:
        values.push_back(square(a) - ops::swish(square(any(values))));
        break;
      case 13:
      case 14: {
        Graph& callee = *callees[static_cast<size_t>(pick(2))];
        const Tensor x = square(a);
        Tensor y = square(any(values));
        const Tensors results = ops::call(g, callee, {x, y, values[2]});
        values.insert(values.end(), results.begin(), results.end());
        break;
      }
      case 15: {
        if (callees[0]->outputs().size() != callees[1]->outputs().size()) break;
        for (const Graph* c : callees) {
          for (const Tensor& t : c->inputs()) {
            if (c->info(t).pass == Pass::kByReference) return;
          }
        }
        for (size_t i = 0; i < callees[0]->outputs().size(); ++i) {
          if (callees[0]->outputs()[i].shape() != callees[1]->outputs()[i].shape()) return;
        }
        const Tensor condition = g.constant(HostTensor::of<bool>({}, boolean, {pick(2) == 0}));
        const Tensor x = square(a);
        const Tensors results = ops::conditional(g, condition, *callees[0], *callees[1],
                                                 {x, square(any(values)), values[2]},
                                                 {square(any(values)), x, values[2]});
        values.insert(values.end(), results.begin(), results.end());
        break;
      }
    }
  }
  Tensor any_of(const Tensors& values, int64_t elements) {
    for (;;) {
      const Tensor t = any(values);
      if (t.elements() == elements) return t;
    }
  }

  Ir& ir_;
  std::mt19937 random_;
};

std::string text(const Ir& ir) {
  std::string result;
  for (const GraphId id : ir.graph_ids()) result += print_schedule(ir.graph(id)) + "\n";
  return result;
}

TEST(RandomGraphs, GradientsAgreeWithCentralDifferences) {
  int differentiated = 0;
  int refused = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Ir ir;
    Graph& g = Generator(ir, seed).graph(static_cast<int>(seed % 3));
    verify(ir);
    const std::string before = text(ir);
    const auto differentiate = [&] { return autodiff(g, {.unreachable = Unreachable::kZeros}); };
    std::optional<GradGraphInfo> info;
    try {
      info = differentiate();
    } catch (const Error& e) {
      ++refused;
      ASSERT_EQ(e.kind(), ErrorKind::kUsage) << e.what();
      const std::string what = e.what();
      ASSERT_TRUE(what.find("overwrites it") != what.npos || what.find("by reference") != what.npos)
          << what;
      EXPECT_EQ(text(ir), before);
      verify(ir);
      continue;
    }
    ++differentiated;
    const auto inputs = random_inputs(g, seed);
    check_gradients(*info, inputs, 1e-5);
    const size_t outputs = g.outputs().size();
    const GradGraphInfo again = differentiate();
    EXPECT_EQ(g.outputs().size(), outputs);
    EXPECT_EQ(again.inputs(), info->inputs());
    bool repeatable = true;
    for (const Tensor& t : g.inputs()) repeatable &= g.info(t).pass == Pass::kByValue;
    if (repeatable) check_gradients(recompute_graph(again).info, inputs, 1e-5);
    if (HasFailure()) {
      ADD_FAILURE() << text(ir);
      return;
    }
  }
  EXPECT_GT(differentiated, 300);
  EXPECT_GT(refused, 10);
  RecordProperty("differentiated", differentiated);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace sluice::transforms
