#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/call.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice {
namespace {

using Doubles = std::vector<double>;

HostTensor array_of(Shape shape, const std::vector<float>& of) {
  return HostTensor::of(std::move(shape), f32, of);
}

// Programs that are run by the interpreter.
class WhileLoop : public testing::Test {
 protected:
  Doubles result(const Tensor& t) {
    const D2hStream out = main_.host_store(t, "out");
    verify(ir_);
    Interpreter interpreter(ir_);
    return interpreter.run({})[out].to_doubles();
  }
  Doubles variable(const Tensor& t) {
    verify(ir_);
    Interpreter interpreter(ir_);
    interpreter.run({});
    return interpreter.read(t).to_doubles();
  }
  Tensor zero() { return main_.scalar(0, f32); }
  static Tensor below(double limit, const Tensor& t) { return ops::greater(limit, t); }

  Ir ir_;
  Graph& main_ = ir_.main_graph();
  const Tensor x_ = main_.variable(array_of({2}, {1, 2}), "x");
};

TEST_F(WhileLoop, RunsWhileTheConditionHolds) {
  const Tensors both = ops::while_loop(
      main_, [](Tensor i, Tensor) { return below(4, i); },
      [](Tensor i, Tensor v) {
        return Tensors{i + 1.0f, v * 2.0f};
      },
      {zero(), x_});
  EXPECT_EQ(result(both[0]), Doubles{4});
  EXPECT_EQ(result(both[1]), (Doubles{16, 32}));
  EXPECT_EQ(variable(x_), (Doubles{1, 2}));
}

TEST_F(WhileLoop, EndsAfterTheMostIterations) {
  const auto more = [&](int64_t max) {
    return ops::while_loop(
        main_, [](Tensor i) { return below(4, i); }, [](Tensor i) { return i + 1.0f; }, {zero()},
        {}, max)[0];
  };
  EXPECT_EQ(result(more(3)), Doubles{3});
  EXPECT_EQ(result(more(4)), Doubles{4});
  EXPECT_EQ(result(more(5)), Doubles{4});
  EXPECT_EQ(result(more(0)), Doubles{0});
}

TEST_F(WhileLoop, MayRunNoIteration) {
  const Tensor v = ops::while_loop(
      main_, [](Tensor i) { return below(-1, i); },
      [&](Tensor i) {
        ops::add_(x_, x_);
        return i + 1.0f;
      },
      {zero()})[0];
  EXPECT_EQ(result(v), Doubles{0});
  EXPECT_EQ(variable(x_), (Doubles{1, 2}));
}

TEST_F(WhileLoop, ReplacesAllCarriedValuesAtOnce) {
  const Tensor one = main_.scalar(1, f32);
  const auto swap = [](Tensor i, Tensor a, Tensor b) { return Tensors{i + 1.0f, b, a}; };
  const Tensors odd = ops::while_loop(main_, [](Tensor i, Tensor, Tensor) { return below(3, i); },
                                      swap, {zero(), zero(), one});
  EXPECT_EQ(result(odd[1]), Doubles{1});
  EXPECT_EQ(result(odd[2]), Doubles{0});
  // One result for two array_of, and one that the body does not change.
  const Tensors same = ops::while_loop(
      main_, [](Tensor i, Tensor, Tensor) { return below(3, i); },
      [](Tensor i, Tensor a, Tensor) {
        return Tensors{i + 1.0f, a, a};
      },
      {zero(), one, zero()});
  EXPECT_EQ(result(same[1]), Doubles{1});
  EXPECT_EQ(result(same[2]), Doubles{1});
}

TEST_F(WhileLoop, MayDependOnVariablesAlone) {
  const Tensors none = ops::while_loop(
      main_, [&] { return below(40, ops::sum(x_)); }, [&] { ops::add_(x_, x_); });
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(variable(x_), (Doubles{16, 32}));
}

TEST_F(WhileLoop, Nests) {
  // 1 + 2 + 3 iterations of the inner loop.
  const Tensors last = ops::while_loop(
      main_, [](Tensor i, Tensor) { return below(3, i); },
      [&](Tensor i, Tensor count) {
        const Tensor next = i + 1.0f;
        const Tensors inner = ops::while_loop(
            main_, [&](Tensor j, Tensor) { return ops::greater(next, j); },
            [](Tensor j, Tensor n) {
              return Tensors{j + 1.0f, n + 1.0f};
            },
            {zero(), count});
        return Tensors{next, inner[1]};
      },
      {zero(), zero()});
  EXPECT_EQ(result(last[1]), Doubles{6});
}

TEST_F(WhileLoop, HasNoGradient) {
  Graph& g = ir_.create_graph(
      "g",
      [](Graph& graph, Tensor x) {
        return ops::while_loop(
            graph, [](Tensor v) { return below(40, ops::sum(v)); },
            [](Tensor v) { return v * 2.0f; }, {x})[0];
      },
      f32_spec({2}));
  expect_refused({{"autodiff", [&] { transforms::autodiff(g); }, "while_loop has no gradient"}});
}

TEST_F(WhileLoop, Refusals) {
  const auto loop = [&](const LoopBody& condition, const LoopBody& body) {
    return [=, this] { ops::while_loop(main_, condition, body, {x_}); };
  };
  const auto fine = [](Tensor v) { return below(3, ops::sum(v)); };
  const auto same = [](Tensor v) { return v; };
  Graph& g = ir_.create_empty_graph("g");
  const Tensor inner = g.input({{}, boolean, {}}, "inner");
  const Infeed pairs = ir_.infeed("pairs", {{"a", f32_spec({2})}, {"b", f32_spec({2})}});
  expect_refused({
      {"negative", [&] { ops::while_loop(main_, fine, same, {x_}, {}, -1); },
       "while_loop: max_iterations must be 0 to 2147483647, got -1"},
      {"condition without a result", loop([](Tensor) {}, same),
       "while_loop: the condition must return 1 tensor, got 0"},
      {"condition of two results",
       loop(
           [](Tensor v) {
             return Tensors{v, v};
           },
           same),
       "while_loop: the condition must return 1 tensor, got 2"},
      {"condition of f32", loop([](Tensor v) { return ops::sum(v); }, same),
       "while_loop: the condition must return a scalar bool, got () float32"},
      {"condition with a shape", loop([](Tensor v) { return below(3, v); }, same),
       "while_loop: the condition must return a scalar bool, got (2,) bool"},
      {"condition of another graph", loop([&](Tensor) { return inner; }, same),
       "while_loop: the condition must return a tensor of graph main, got 'inner' of graph g"},
      {"empty condition", loop([](Tensor) { return Tensor(); }, same),
       "while_loop: the condition must return a tensor of graph main, got an empty handle"},
      {"condition with an element",
       [&] {
         ops::while_loop(
             main_, [](Tensor v, Tensor, Tensor) { return v; }, same, {x_}, pairs);
       },
       "while_loop: condition: the body must have 1 parameter, got 3"},
      {"dtype", loop(fine, [](Tensor v) { return ops::cast(v, f16); }),
       "while_loop: result 0 of the body must be (2,) float32 like input 'x', got (2,) float16"},
      {"unread infeed",
       [&] {
         ops::while_loop(
             main_, fine, [](const LoopArguments& in) { return in[0]; }, {x_}, pairs);
       },
       "while_loop: the body must read infeed 'pairs'"},
      {"output in the condition",
       loop(
           [&](Tensor v) {
             main_.add_output(v);
             return below(3, ops::sum(v));
           },
           same),
       "while_loop: the outputs of graph main must be added outside the body"},
  });
  // The ops of the functions are removed.
  EXPECT_EQ(main_.ops().size(), 0u);
  EXPECT_TRUE(main_.outputs().empty());
}

TEST_F(WhileLoop, ConditionsOfRepeatedGraphs) {
  const auto repeated = [&](Pass pass, TensorSpec spec, bool output) {
    return [=, this] {
      Graph& g = ir_.create_empty_graph("g");
      const Tensor c = g.input(spec, "c", pass);
      if (output) g.add_output(c);
      const Tensor start = ops::cast(zero(), spec.dtype);
      ops::repeat(main_, g, 2, {start}, {}, ops::RepeatOptions{.condition = c});
    };
  };
  const TensorSpec scalar{{}, boolean, {}};
  expect_refused({
      {"by value", repeated(Pass::kByValue, scalar, false),
       "the condition must be a scalar bool input of g_subgraph(0), by reference"},
      {"dtype", repeated(Pass::kByReference, {{}, f32, {}}, false), "must be a scalar bool input"},
      {"carried", repeated(Pass::kByValue, scalar, true),
       "must have no outputs where a condition is given, got 1"},
  });
}

}  // namespace
}  // namespace sluice
