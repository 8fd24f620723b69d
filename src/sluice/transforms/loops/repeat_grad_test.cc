// Gradients of repeat. A loop is compared with calls of its body, bit for bit.
#include <random>

#include "sluice/base/test_refusals.h"
#include "sluice/ir/call.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/loops/loops.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

constexpr Iterations kBoth[] = {Iterations::kKeep, Iterations::kRecompute};

// A body with carried inputs x and y, invariant inputs w and b, and the number of its iteration.
struct Body {
  Graph* graph = nullptr;
  Tensor iteration = {};
  size_t carried = 2;
};

// Returns a graph that runs the body `trips` times: in a loop, or in calls.
Graph& looped(Ir& ir, const Body& body, int64_t trips) {
  Graph& g = ir.create_empty_graph("looped");
  Tensors inputs;
  for (const Tensor& t : body.graph->inputs()) {
    if (t != body.iteration) inputs.push_back(g.input(t.spec(), t.name()));
  }
  const Tensors first(inputs.begin(), inputs.begin() + static_cast<int64_t>(body.carried));
  TensorMap named;
  size_t next = 0;
  for (const Tensor& t : body.graph->inputs()) {
    if (t == body.iteration) continue;
    if (next >= body.carried) named.emplace_back(t, inputs[next]);
    ++next;
  }
  g.set_outputs(ops::repeat(g, *body.graph, trips, first, named, {.iteration = body.iteration}));
  return g;
}

Graph& unrolled(Ir& ir, const Body& body, int64_t trips) {
  Graph& g = ir.create_empty_graph("unrolled");
  Tensors inputs;
  for (const Tensor& t : body.graph->inputs())
    inputs.push_back(t == body.iteration ? Tensor() : g.input(t.spec(), t.name()));
  Tensors values = inputs;
  for (int32_t i = 0; i < trips; ++i) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (!inputs[k].valid()) values[k] = g.scalar(i, i32, "iteration");
    }
    const Tensors results = ops::call(g, *body.graph, values);
    std::copy_n(results.begin(), body.carried, values.begin());
  }
  g.set_outputs(Tensors(values.begin(), values.begin() + static_cast<int64_t>(body.carried)));
  return g;
}

std::vector<HostTensor> gradients(Graph& graph, Iterations iterations, uint64_t seed,
                                  Precision precision = Precision::kFloat) {
  const GradGraphInfo info =
      autodiff(graph, {.unreachable = Unreachable::kZeros, .iterations = iterations});
  Graph& step = gradient_step(info);
  verify(graph.ir());
  std::vector<HostTensor> arrays;
  for (const Tensor& t : step.inputs())
    arrays.push_back(random_array(t.shape(), seed++).cast(t.dtype()));
  return Interpreter(graph.ir(), precision).evaluate(step, arrays);
}

void expect_same(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    EXPECT_TRUE(a[k].same_bits(b[k]))
        << "gradient " << k << ": " << testing::PrintToString(a[k].to_doubles())
        << ", calls: " << testing::PrintToString(b[k].to_doubles());
  }
}

class Generator {
 public:
  Generator(Ir& ir, uint32_t seed) : ir_(ir), random_(seed) {}

  Body body(int depth) {
    const TensorSpec square{{2, 2}, f32, {}};
    Graph* const callee = pick(2) == 0 ? body(0, "callee").graph : nullptr;
    const Body inner = depth > 0 ? body(depth - 1) : Body();
    return body(depth, "body", callee, inner);
  }

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Body body(int depth, const std::string& name, Graph* callee = nullptr, const Body& inner = {}) {
    const TensorSpec square{{2, 2}, f32, {}};
    Body result{.graph = &ir_.create_empty_graph(name)};
    Graph& g = *result.graph;
    Tensors values{g.input(square, "x"), g.input(square, "y"), g.input(square, "w"),
                   g.input({{2}, f32, {}}, "b")};
    if (name != "callee" && pick(2) == 0) {
      result.iteration = g.input({{}, i32, {}}, "i");
      values.push_back(values[0] * ops::cast(result.iteration + g.scalar(1, i32), f32));
    }
    const int length = 2 + pick(5);
    for (int i = 0; i < length; ++i) {
      const Tensor a = any(values);
      const Tensor b = any(values);
      switch (pick(depth > 0 || callee != nullptr ? 11 : 8)) {
        case 0:
          values.push_back(a + b);
          break;
        case 1:
          values.push_back(ops::tanh(a) * b);
          break;
        case 2:
          values.push_back(ops::matmul(a, b));
          break;
        case 3:
          values.push_back(ops::gelu(a));
          break;
        case 4:
          values.push_back(a * values[3]);
          break;
        case 5:
          values.push_back(ops::add_(ops::identity(a), b));
          break;
        case 6:
          values.push_back(ops::matmul(a, values[2]));
          break;
        case 7:
          values.push_back(-a);
          break;
        default:
          if (callee != nullptr && pick(2) == 0) {
            const Tensors results = ops::call(g, *callee, {a, b, values[2], values[3]});
            values.insert(values.end(), results.begin(), results.end());
          } else if (inner.graph != nullptr) {
            const Tensor w = pick(2) == 0 ? values[2] : b;
            const Tensors results =
                ops::repeat(g, *inner.graph, 1 + pick(3), {a, b},
                            {{inner.graph->inputs()[2], w}, {inner.graph->inputs()[3], values[3]}},
                            {.iteration = inner.iteration});
            values.insert(values.end(), results.begin(), results.end());
          }
          break;
      }
    }
    g.set_outputs({values.back(), pick(4) == 0 ? values[0] : any(values)});
    return result;
  }
  Tensor any(const Tensors& values) {
    for (;;) {
      const Tensor t = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
      if (t.rank() == 2) return t;
    }
  }

  Ir& ir_;
  std::mt19937 random_;
};

TEST(RepeatGradients, RandomBodiesHaveTheBitsOfCalls) {
  for (uint32_t seed = 0; seed < 240 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Ir ir;
    const Body body = Generator(ir, seed).body(static_cast<int>(seed % 3));
    constexpr std::array<int64_t, 4> kTrips{1, 2, 7, 0};
    const int64_t trips = kTrips.at(seed / 3 % 4);
    const auto calls = gradients(unrolled(ir, body, trips), Iterations::kKeep, seed);
    Graph& loop = looped(ir, body, trips);
    for (const Iterations iterations : kBoth) expect_same(gradients(loop, iterations, seed), calls);
  }
}

// The body of the tests below: x ← tanh(x·w + b), with a count of iterations.
Body recurrence(Ir& ir) {
  Body body{.graph = &ir.create_empty_graph("recurrence"), .carried = 1};
  Graph& g = *body.graph;
  const Tensor x = g.input(f32_spec({2, 3}), "x");
  const Tensor w = g.input(f32_spec({3, 3}), "w");
  g.set_outputs({ops::tanh(ops::matmul(x, w) + g.input(f32_spec({3}), "b"))});
  return body;
}

TEST(RepeatGradients, AgreeWithCentralDifferences) {
  for (const Iterations iterations : kBoth) {
    Ir ir;
    Graph& g = looped(ir, recurrence(ir), 4);
    check_gradients(autodiff(g, {.iterations = iterations}), random_inputs(g));
  }
}

TEST(RepeatGradients, HaveGradients) {
  for (const Iterations iterations : kBoth) {
    Ir ir;
    Graph& step =
        gradient_step(autodiff(looped(ir, recurrence(ir), 3), {.iterations = iterations}));
    check_gradients(autodiff(step), random_inputs(step));
  }
}

TEST(RepeatGradients, KeepOneRowForEachIteration) {
  Ir ir;
  Graph& g = looped(ir, recurrence(ir), 5);
  autodiff(g);
  ASSERT_EQ(g.outputs().size(), 3u);  // The result, x and the result of tanh.
  EXPECT_EQ(g.outputs()[1].shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(g.outputs()[2].shape(), (Shape{5, 2, 3}));
  const size_t ops = g.ops().size();
  const size_t body_ops = ir.graph(g.ops().back().callees[0]).ops().size();
  autodiff(g);  // It reuses the rows.
  EXPECT_EQ(g.outputs().size(), 3u);
  EXPECT_EQ(g.ops().size(), ops);
  EXPECT_EQ(ir.graph(g.ops().back().callees[0]).ops().size(), body_ops);
}

TEST(RepeatGradients, RecomputationKeepsCarriedInputs) {
  Ir ir;
  Graph& g = looped(ir, recurrence(ir), 5);
  autodiff(g, {.iterations = Iterations::kRecompute});
  ASSERT_EQ(g.outputs().size(), 2u);
  EXPECT_EQ(g.outputs()[1].shape(), (Shape{5, 2, 3}));
}

TEST(RepeatGradients, GraphsDoNotGrowWithTheTripCount) {
  const auto ops = [](int64_t trips) {
    Ir ir;
    autodiff(looped(ir, recurrence(ir), trips));
    size_t count = 0;
    for (const GraphId id : ir.graph_ids()) count += ir.graph(id).ops().size();
    return count;
  };
  EXPECT_EQ(ops(2), ops(1000));
}

// The weight has readers before and after the loop and is two inputs of it. The order of the sum
// is that of calls.
TEST(RepeatGradients, SumsContinueThoseOfLaterReaders) {
  Ir ir;
  Graph& body = ir.create_graph(
      "body", [](Graph&, Tensor x, Tensor w, Tensor v) { return ops::tanh(x * w) + v; },
      f32_spec({3}), f32_spec({3}), f32_spec({3}));
  const auto user = [&](bool loop) -> Graph& {
    return ir.create_graph(
        "user",
        [&](Graph& g, Tensor x, Tensor w) {
          Tensor y = x * w;
          if (loop) {
            y = ops::repeat(g, body, 3, {y, w, ops::reshape_(w, {3})})[0];
          } else {
            for (int i = 0; i < 3; ++i) y = ops::call(g, body, {y, w, w})[0];
          }
          return y * ops::gelu(w) + w;
        },
        f32_spec({3}), f32_spec({3}));
  };
  for (const Iterations iterations : kBoth) {
    expect_same(gradients(user(true), iterations, 3), gradients(user(false), iterations, 3));
  }
}

TEST(RepeatGradients, PassLoopsOfFunctionsAndOfCalledGraphs) {
  Ir ir;
  const auto layer = [&](bool loop) -> Graph& {
    return ir.create_graph(
        "layer",
        [&](Graph& g, Tensor x, Tensor w) {
          const auto body = [&](Tensor v) { return ops::tanh(ops::matmul(v, w)) + x; };
          if (loop) return ops::repeat(g, 3, [&](Tensor v) { return body(v); }, {x})[0];
          return body(body(body(x)));
        },
        f32_spec({2, 2}), f32_spec({2, 2}));
  };
  const auto net = [&](Graph& called) -> Graph& {
    return ir.create_graph(
        "net",
        [&](Graph& g, Tensor x, Tensor w) {
          return ops::call(g, called, {ops::call(g, called, {x, w})[0] * x, w})[0];
        },
        f32_spec({2, 2}), f32_spec({2, 2}));
  };
  Graph& looped = net(layer(true));
  for (const Iterations iterations : kBoth) {
    const auto a = gradients(looped, iterations, 5, Precision::kDouble);
    const auto b = gradients(net(layer(false)), iterations, 5, Precision::kDouble);
    for (size_t k = 0; k < a.size(); ++k) {
      for (size_t i = 0; i < a[k].to_doubles().size(); ++i)
        EXPECT_NEAR(a[k].to_doubles()[i], b[k].to_doubles()[i], 1e-12);
    }
  }
}

// Two loops of one graph, with different trip counts. A second loop that shares the wrapper graph
// of the first one also stores its iterations.
TEST(RepeatGradients, OtherUsersOfABodyFollow) {
  Ir ir;
  const Body body = recurrence(ir);
  Graph& five = looped(ir, body, 5);
  Graph& two = looped(ir, body, 2);
  Graph& copy = ir.create_empty_graph("copy");
  {
    const Op& loop = five.ops().back();
    std::vector<TensorArg> inputs;
    for (const Tensor& t : five.inputs()) inputs.emplace_back(copy.input(t.spec(), t.name()));
    copy.set_outputs(copy.emit(*loop.def, inputs, loop.attrs,
                               {.callees = loop.callees,
                                .modes = std::vector(inputs.size(), Mode::kRead),
                                .outputs = {five.outputs()[0].spec()}}));
  }
  check_gradients(autodiff(five), random_inputs(five));
  check_gradients(autodiff(two), random_inputs(two));
  EXPECT_EQ(copy.ops().back().inputs.size(), 5u);
  check_gradients(autodiff(copy), random_inputs(copy));
}

TEST(RepeatGradients, StateWithoutAGradientMayBeWrittenByReference) {
  Ir ir;
  Graph& body = ir.create_graph(
      "body",
      [](Graph&, Tensor x, Tensor seen, Tensor w) {
        ops::accumulate_(seen, ops::detach(x));
        return ops::tanh(x * w);
      },
      f32_spec({3}), NamedInput{"seen", f32_spec({3}), Pass::kByReference}, f32_spec({3}));
  Graph& g = ir.create_graph(
      "g",
      [&](Graph& graph, Tensor x, Tensor seen, Tensor w) {
        return ops::repeat(graph, body, 3, {x, seen, w})[0];
      },
      f32_spec({3}), f32_spec({3}), f32_spec({3}));
  for (const Iterations iterations : {Iterations::kKeep}) {
    check_gradients(autodiff(g, {.unreachable = Unreachable::kZeros, .iterations = iterations}),
                    random_inputs(g));
  }
  expect_refused(
      {{"recomputation",
        [&] {
          autodiff(g, {.unreachable = Unreachable::kZeros, .iterations = Iterations::kRecompute});
        },
        "it writes its input 'seen', which is passed by reference"}});
}

// A scan: h ← tanh(x·w + h·u), whose rows are 3·h.
struct Cell {
  Graph* graph;
  Tensor w, u;
};
Cell cell(Ir& ir) {
  Graph& g = ir.create_empty_graph("cell");
  const Tensor h = g.input(f32_spec({2, 3}), "h");
  const Tensor x = g.input(f32_spec({2, 2}), "x");
  const Tensor w = g.input(f32_spec({2, 3}), "w");
  const Tensor u = g.input(f32_spec({3, 3}), "u");
  const Tensor next = ops::tanh(ops::matmul(x, w) + ops::matmul(h, u));
  g.set_outputs({next, next * 3});
  return {&g, w, u};
}

Graph& scanned(Ir& ir, ops::RowOrder order, bool loop) {
  const Cell c = cell(ir);
  Graph& g = ir.create_empty_graph("scanned");
  const Tensor xs = g.input(f32_spec({4, 2, 2}), "xs");
  const Tensor h = g.input(f32_spec({2, 3}), "h");
  const Tensor w = g.input(f32_spec({2, 3}), "w");
  const Tensor u = g.input(f32_spec({3, 3}), "u");
  if (loop) {
    const ops::ScanResults results = ops::scan(g, *c.graph, {h}, {xs}, {{c.w, w}, {c.u, u}}, order);
    g.set_outputs({results.carried[0], ops::gelu(results.rows[0])});
    return g;
  }
  Tensor last = h;
  std::vector<TensorArg> rows(4, h);
  for (int i = 0; i < 4; ++i) {
    const int row = order == ops::RowOrder::kAscending ? i : 3 - i;
    const Tensors results = ops::call(g, *c.graph, {last, ops::select(xs, row), w, u});
    last = results[0];
    rows[static_cast<size_t>(row)] = results[1];
  }
  g.set_outputs({last, ops::gelu(ops::stack(rows))});
  return g;
}

TEST(ScanGradients, HaveTheBitsOfCalls) {
  for (const ops::RowOrder order : {ops::RowOrder::kAscending, ops::RowOrder::kDescending}) {
    Ir ir;
    Graph& calls = scanned(ir, order, false);
    Graph& loop = scanned(ir, order, true);
    const std::vector<HostTensor> want = gradients(calls, Iterations::kKeep, 2);
    for (const Iterations iterations : kBoth) expect_same(gradients(loop, iterations, 2), want);
    check_gradients(autodiff(loop), random_inputs(loop));
  }
}

// The gradient of a sequence is stored row by row; there is no sum of whole tensors. Rows that a
// gradient reads come from the sequence, which is not stored again.
TEST(ScanGradients, StoreRows) {
  Ir ir;
  Graph& g = scanned(ir, ops::RowOrder::kDescending, true);
  const GradGraphInfo info = autodiff(g);
  for (const GraphId id : ir.graph_ids()) {
    for (const Op& op : ir.graph(id).ops()) {
      EXPECT_NE(op.def->name, "gather_grad");
      if (op.def->name != "add") continue;
      EXPECT_NE(ir.graph(id).spec(op.outputs[0]).shape, (Shape{4, 2, 2}));
    }
  }
  // The results, the kept h and tanh's results, and gelu's operand.
  EXPECT_LE(g.outputs().size(), 5u);
}

TEST(ScanGradients, HaveGradients) {
  Ir ir;
  Graph& loop = scanned(ir, ops::RowOrder::kAscending, true);
  Graph& step = gradient_step(autodiff(loop));
  check_gradients(autodiff(step), random_inputs(step));
}

TEST(ScanGradients, Refusals) {
  Ir ir;
  const Cell c = cell(ir);
  Graph& g = ir.create_empty_graph("g");
  const Tensor xs = g.input(f32_spec({4, 2, 2}), "xs");
  const Tensor h = g.input(f32_spec({2, 3}), "h");
  const Tensor none = g.input(f32_spec({0, 2, 2}), "none");
  const TensorMap named{{c.w, h}, {c.u, g.input(f32_spec({3, 3}), "u")}};
  const auto scan = [&](const Tensors& carried, const Tensors& sequences, const TensorMap& rest) {
    return [=, &g] { ops::scan(g, *c.graph, carried, sequences, rest); };
  };
  expect_refused({
      {"without a sequence", scan({h}, {}, named), "scan: requires at least one sequence"},
      {"without rows", scan({h}, {none}, named), "a sequence must have at least one row"},
      {"shape", scan({h}, {h}, named), "must get (2, 2, 2) float32, got 'h' (2, 3) float32"},
      {"carried", scan({xs}, {xs}, named), "must get (2, 3) float32, got 'xs'"},
      {"missing", scan({h}, {xs}, {}), "must get a tensor, got none"},
      {"another graph", scan({c.u}, {xs}, named), "must get a tensor of graph"},
      {"too many", scan({h, h, h}, {xs, xs}, named), "must have at least 5 inputs and 3 outputs"},
      {"named twice", scan({h}, {xs}, {{c.w, h}, named[1], {c.graph->inputs()[0], h}}),
       "a named tensor must be for an input of graph"},
      {"its own graph", [&] { ops::scan(g, g, {h}, {xs}, named); },
       "must be another graph of the Ir of graph"},
      {"another Ir",
       [&] {
         Ir other;
         ops::scan(other.main_graph(), *c.graph, {h}, {xs}, named);
       },
       "must be another graph of the Ir of graph"},
  });
  Graph& writes = ir.create_empty_graph("writes");
  const Tensor row = writes.input(f32_spec({2, 2}), "row", Pass::kByReference);
  writes.set_outputs({row});
  expect_refused({{"by reference", [&] { ops::scan(g, writes, {}, {xs}, {}); },
                   "so it must be by value, got by reference"}});
}

TEST(ScanGradients, ARefusedScanAddsNoOps) {
  Ir ir;
  Graph& body = ir.create_empty_graph("body");
  const Tensor x = body.input(f32_spec({2}), "x");
  const Tensor sum = body.input(f32_spec({2}), "sum", Pass::kByReference);
  body.set_outputs({ops::add_(sum, x) * 2});
  Graph& g = ir.create_empty_graph("g");
  const Tensor xs = g.input(f32_spec({4, 2}), "xs");
  const Tensor zero = g.constant(HostTensor(f32_spec({2})), "zero");
  const std::string before = print_schedule(g);
  expect_refused({{"a constant",
                   [&] {
                     ops::scan(g, body, {}, {xs}, {{sum, zero}});
                   },
                   "constant 'zero' cannot be written"}});
  EXPECT_EQ(print_schedule(g), before);
  verify(ir);
}

std::string text(const Ir& ir) {
  std::string result;
  for (const GraphId id : ir.graph_ids()) result += print_schedule(ir.graph(id)) + "\n";
  return result;
}

TEST(RepeatGradients, Refusals) {
  Ir ir;
  Graph& state = ir.create_graph(
      "state",
      [](Graph&, Tensor x, Tensor s) {
        ops::add_(s, x);
        return ops::tanh(x * s);
      },
      f32_spec({3}), NamedInput{"s", f32_spec({3}), Pass::kByReference});
  Graph& through_state = ir.create_graph(
      "through",
      [&](Graph& g, Tensor x) {
        return ops::repeat(g, state, 2, {x, ops::init(g, f32_spec({3}))});
      },
      f32_spec({3}));
  Graph& state_after = ir.create_graph(
      "after",
      [&](Graph& g, Tensor x) {
        const Tensor s = ops::init(g, f32_spec({3}));
        ops::repeat(g, state, 2, {x, s});
        return s * s;
      },
      f32_spec({3}));
  Graph& exits = ir.create_graph(
      "exits",
      [&](Graph& g, Tensor x) {
        return ops::while_loop(
            g,
            [&](Tensor v) {
              return ops::greater(g.scalar(1, f32), ops::reshape(ops::slice(v, {0}, {1}), {}));
            },
            [](Tensor v) { return v * v; }, {x}, {}, 4)[0];
      },
      f32_spec({3}));
  Graph& overwriting = ir.create_graph(
      "overwriting",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x + x;
        const Tensor z = y * w;
        ops::copy_var_update_(y, w);
        return z;
      },
      f32_spec({3}), f32_spec({3}));
  Graph& overwrites = ir.create_graph(
      "overwrites",
      [&](Graph& g, Tensor x, Tensor w) {
        return ops::repeat(g, overwriting, 2, {x, w});
      },
      f32_spec({3}), f32_spec({3}));
  const std::string before = text(ir);
  expect_refused({
      {"state between iterations", [&] { autodiff(through_state); },
       "which its iterations write by reference; carry the value instead"},
      {"state after the loop", [&] { autodiff(state_after); },
       "which writes to it by reference; return the new value as an output instead"},
      {"while_loop", [&] { autodiff(exits); }, "while_loop has no gradient, and the gradient of"},
      {"overwritten value", [&] { autodiff(overwrites); }, "overwrites it"},
  });
  EXPECT_EQ(text(ir), before);
  verify(ir);
}

}  // namespace
}  // namespace sluice::transforms
