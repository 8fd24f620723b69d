// Programs that are difficult for fusion and layouts. check() disables each pass in
// turn and compares the results with the interpreter's, bit for bit. It compares planned with
// measured bytes. It also checks the plan, its text, and the values of its stages.

#include "fusion_program.h"

namespace sluice::test {
namespace {

// --- ops between a producer and its consumer

TEST_F(Fusion, AnUpdateOfAnOperandBetweenProducerAndConsumer) {
  const Tensor x = input({5, 20});
  const Tensor w = variable({20, 33}, "w");
  const Tensor b = variable({33}, "b");
  const Tensor y = ops::matmul(x, w);
  const Tensor before = ops::relu(y + b);
  ops::add_(b, main.scalar(1, f32));
  const Tensor after = ops::gelu(y + b);
  show(before);
  show(after);
  show(ops::tanh(before + after));
  EXPECT_GT(check().fused, 0);
}

TEST_F(Fusion, AProductReadAfterItsWeightWasOverwritten) {
  const Tensor x = input({7, 24});
  const Tensor w = variable({24, 24}, "w");
  const Tensor y = ops::matmul(x, w);
  const Tensor dw = ops::matmul(x, x, kOfTransposed);
  ops::scaled_add_(w, dw, 1.0, -0.125);
  const Tensor z = ops::gelu(y) + ops::matmul(x, w);
  ops::scaled_add_(w, dw, 0.5, 0.25);
  show(ops::relu(z) * ops::matmul(x, w));
  EXPECT_EQ(check().layouts["w"], "panels32");
}

TEST_F(Fusion, AValueOfAVariableReadAfterTheOverwrite) {
  const Tensor x = input({6, 17});
  const Tensor w = variable({17, 18}, "w");
  const Tensor old = w * 2.0;
  const Tensor copy = ops::identity(w);
  ops::add_(w, old);
  show(ops::matmul(x, w));
  show(old + copy);
  show(ops::matmul(x, copy) + ops::matmul(x, old));
  ops::copy_var_update_(w, copy);
  check();
}

TEST_F(Fusion, ResultsOverwrittenInPlace) {
  const Tensor x = input({9, 16});
  const Tensor w = variable({16, 40}, "w");
  const Tensor b = variable({40}, "b");
  Tensor y = ops::matmul(x, w);
  ops::add_(y, b);
  ops::relu_(y);
  const Tensor kept = y + 1.0;
  ops::gelu_(y);
  ops::add_(y, kept);
  show(y);
  const Tensor z = ops::matmul(x, w);
  const Tensor shown = ops::identity(z);
  ops::swish_(z);
  show(shown - z);
  check();
}

TEST_F(Fusion, TwoUpdatesOfOneVariable) {
  const Tensor x = input({12, 20});
  const Tensor dy = input({12, 36});
  const Tensor w = variable({20, 36}, "w");
  show(ops::matmul(x, w));
  ops::scaled_add_(w, ops::matmul(x, dy, kOfTransposed), 1.0, -0.5);
  ops::scaled_add_(w, ops::matmul(x, ops::tanh(dy), kOfTransposed), 1.0, -0.25);
  show(ops::matmul(dy, w, kByTransposed));
  ops::accumulator_scale_(w, 0.75);
  ops::scaled_add_(w, w, 0.5, 0.25);
  EXPECT_EQ(check().layouts["w"], "panels32");
}

// An update reads a variable. A later op overwrites that variable with the update's result.
TEST_F(Fusion, UpdatesThatReadEachOther) {
  const Tensor x = input({12, 20});
  const Tensor dy = input({12, 36});
  const Tensor a = variable({20, 36}, "a");
  const Tensor b = variable({20, 36}, "b");
  const Tensor dw = ops::matmul(x, dy, kOfTransposed);
  const Tensor old = a + 0.0;
  ops::scaled_add_(a, dw, 1.0, -0.5);
  ops::scaled_add_(b, a, 0.5, 1.0);
  ops::scaled_add_(a, b, 1.0, 0.125);
  ops::copy_var_update_(b, old);
  show(ops::matmul(x, a) + ops::matmul(x, b));
  check();
}

// --- training

TEST_F(Fusion, GradientsClippedByTheirNorm) {
  const Tensor x = input({12, 20});
  const Tensor dy = input({12, 36});
  const Tensor w = variable({20, 36}, "w");
  const Tensor v = variable({36, 7}, "v");
  const Tensor h = ops::gelu(ops::matmul(x, w));
  show(ops::matmul(h, v));
  const Tensor dv = ops::matmul(h, ops::slice(dy, {0, 0}, {12, 7}), kOfTransposed);
  const Tensor dw = ops::matmul(x, dy, kOfTransposed);
  const Tensor norm = ops::sqrt(ops::sumsquare(dv) + ops::sumsquare(dw));
  const Tensor scale = 1.0 / ops::maximum(norm, main.scalar(1, f32));
  ops::scaled_add_(v, dv * scale, 1.0, -0.5);
  ops::scaled_add_(w, dw * scale, 1.0, -0.5);
  show(norm);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("w"), "panels32");
  EXPECT_EQ(effect.layouts.at("v"), "panels16");
}

TEST_F(Fusion, MomentumAdamAndWeightDecay) {
  const Tensor x = input({12, 20});
  const Tensor dy = input({12, 36});
  const Tensor rate = input({});
  for (const bool by_norms : {false, true}) {
    const auto state = [&](const char* name) {
      return variable({20, 36}, fmt::format("{}.{}", name, by_norms ? "norms" : "plain"));
    };
    const Tensor w = state("w");
    const Tensor m = state("m");
    const Tensor v = state("v");
    const Tensor step = main.variable(HostTensor::scalar(0), by_norms ? "step.norms" : "step");
    const Tensor y = ops::gelu(ops::matmul(x, w));
    const Tensor dw = ops::matmul(x, dy * y, kOfTransposed);
    ops::accumulate_moving_average_(m, dw, 0.9);
    ops::accumulate_moving_average_square_(v, dw, 0.99);
    ops::add_(v, ops::abs(v));  // Not negative for any initial value.
    const Tensor update = ops::adam_updater(
        m, v, {.weight = w, .time_step = step, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.99});
    if (by_norms) {
      ops::adam_var_update(w, update, ops::sumsquare(w), ops::sumsquare(update), rate);
    } else {
      ops::scaled_add_(w, update, 1.0, rate);
    }
    ops::scaled_add_(w, w, 1.0, -0.0625);
    show(y);
  }
  const Effect effect = check();
  for (const char* path : {"w.plain", "m.plain", "v.plain"})
    EXPECT_EQ(effect.layouts.at(path), "panels32") << path;
  EXPECT_EQ(effect.layouts.at("w.norms"), "row");  // Norms are sums over rows.
  EXPECT_GE(effect.max, 3);
}

TEST_F(Fusion, OneWeightTiedInSeveralPlaces) {
  const Tensor x = input({6, 24});
  const Tensor w = variable({24, 24}, "w");
  const Tensor twice = variable({24, 24}, "twice");
  const Tensor table = variable({40, 24}, "table");
  const Tensor rows =
      main.constant(HostTensor::of<int32_t>({6}, i32, {0, 39, 3, 3, 17, 1}), "rows");
  const Tensor h = ops::gelu(ops::gather(table, rows) + ops::matmul(x, w));
  show(ops::matmul(h, table, kByTransposed));  // Logits from the embedding.
  show(ops::relu(ops::matmul(h, w, kByTransposed)));
  show(ops::matmul(twice, w));  // Also as lhs.
  show(ops::matmul(x, twice));
  const Tensor dw = ops::matmul(x, h, kOfTransposed);
  ops::scaled_add_(w, dw, 1.0, -0.125);
  ops::scaled_add_(twice, dw + w, 1.0, -0.125);
  ops::scaled_add_(table, ops::matmul(ops::matmul(h, table, kByTransposed), h, kOfTransposed), 1.0,
                   -0.001);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("w"), "panels32");
  EXPECT_EQ(effect.layouts.at("table"), "row");
  EXPECT_EQ(effect.layouts.at("twice"), "row");
}

// With one output, the weight is a column in the product and a row in the gradient of the input.
TEST_F(Fusion, LayersWithOneOutputOrOneInput) {
  for (const int64_t inputs : {1, 3, 16, 17, 40}) {
    for (const int64_t outputs : {1, 2, 17}) {
      const Tensor x = input({5, inputs});
      const Tensor w = variable({inputs, outputs}, fmt::format("w.{}.{}", inputs, outputs));
      const Tensor b = variable({outputs}, fmt::format("b.{}.{}", inputs, outputs));
      const Tensor y = ops::gelu(ops::matmul(x, w) + b);
      const Tensor dy = y * 0.5;
      show(y);
      show(ops::matmul(dy, w, kByTransposed));
      show(ops::relu(ops::matmul(dy, w, kByTransposed)));
      ops::scaled_add_(w, ops::matmul(x, dy, kOfTransposed), 1.0, -0.25);
      ops::scaled_add_(b, ops::sum(dy, {.axes = {0}}), 1.0, -0.25);
    }
  }
  EXPECT_EQ(check().layouts["w.40.1"], "panels16");
}

TEST_F(Fusion, SquareMatricesAndTheirRowsAndColumns) {
  for (const int64_t n : {1, 16, 17, 32, 40}) {
    const auto name = [n](const char* what) { return fmt::format("{}{}", what, n); };
    const Tensor x = input({n, n});
    const Tensor w = variable({n, n}, name("w"));
    const Tensor v = variable({n, n}, name("v"));
    const Tensor across = variable({n}, name("across"));
    const Tensor down = variable({n, 1}, name("down"));
    const Tensor along = variable({1, n}, name("along"));
    const Tensor y = ops::matmul(x, w);
    show(ops::tanh((y + across) * down - along));
    show(ops::relu(ops::matmul(y, w, kByTransposed) * across));
    show(ops::matmul(w, x));
    show(ops::matmul(x, v) + v);
    show(ops::matmul(x, v, {.lhs_transposed = true, .rhs_transposed = true}) * v + across);
    ops::add_(v, across);
    ops::add_(v, down);
    ops::scaled_add_(v, ops::matmul(y, x, kOfTransposed), 1.0, 0.125);
    ops::scaled_add_(w, ops::matmul(v, v), 1.0, 0.125);
    ops::accumulator_scale_(w, 0.25);
    ops::accumulator_scale_(v, 0.25);
  }
  check();
}

TEST_F(Fusion, ManyTasks) {
  const Tensor x = input({150, 300});
  const Tensor dy = input({150, 400});
  const Tensor w = variable({300, 400}, "w");
  const Tensor m = variable({300, 400}, "m");
  const Tensor b = variable({400}, "b");
  const Tensor y = ops::gelu(ops::matmul(x, w) + b);
  const Tensor g = dy * y;
  show(ops::relu(ops::matmul(g, w, kByTransposed) + x));
  const Tensor dw = ops::matmul(x, g, kOfTransposed);
  ops::accumulate_moving_average_(m, dw, 0.9);
  ops::scaled_add_(w, m, 0.99, -0.125);
  ops::scaled_add_(b, ops::sum(g, {.axes = {0}}), 1.0, -0.125);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("m"), "panels32");
  EXPECT_GE(effect.max, 3);
}

// --- shapes at the edge

TEST_F(Fusion, EmptyTensorsAndVectors) {
  const Tensor none = input({0, 20});
  const Tensor w = variable({20, 17}, "w");
  const Tensor b = variable({17}, "b");
  const Tensor no_depth = variable({0, 17}, "no_depth");
  const Tensor no_cols = variable({20, 0}, "no_cols");
  const Tensor v = input({20});
  const Tensor x = input({4, 20});
  show(ops::relu(ops::matmul(none, w) + b));
  show(ops::gelu(ops::matmul(ops::matmul(x, no_cols), no_depth) + b));
  show(ops::matmul(x, no_cols) * 2.0);
  show(ops::matmul(v, w) + b);
  show(ops::tanh(ops::matmul(x, v)));
  show(ops::matmul(w, ops::matmul(v, w)) * v);
  ops::scaled_add_(no_depth, ops::matmul(input({3, 0}), input({3, 17}), kOfTransposed), 1.0, 0.5);
  ops::scaled_add_(w, ops::matmul(none, ops::matmul(none, w), kOfTransposed), 1.0, 0.5);
  check();
}

TEST_F(Fusion, BatchesOfMatrices) {
  const Tensor x = input({3, 5, 20});
  const Tensor w = variable({20, 24}, "w");
  const Tensor many = variable({3, 20, 24}, "many");
  show(ops::gelu(ops::matmul(x, w) + w.graph().scalar(1, f32)));
  show(ops::relu(ops::matmul(x, many)));
  show(ops::tanh(ops::matmul(ops::reshape(x, {15, 20}), w)));
  ops::scaled_add_(many, many * 0.5, 1.0, 0.25);
  ops::scaled_add_(w, ops::sum(many, {.axes = {0}}), 1.0, 0.25);
  check();
}

TEST_F(Fusion, ChainsLongerThanAKernel) {
  const Tensor x = input({8, 20});
  const Tensor w = variable({20, 24}, "w");
  Tensor y = ops::matmul(x, w);
  for (int i = 0; i < 20; ++i) {
    y = ops::tanh(y) + w.graph().scalar(0.125 * i, f32);
    if (i % 7 == 3) show(y);
  }
  show(y);
  Tensor z = w * 0.5;
  for (int i = 0; i < 11; ++i) z = ops::sigmoid(z * w);
  ops::add_(w, z);
  check();
}

// --- views, results, dead ends

TEST_F(Fusion, ViewsOfAWeight) {
  const Tensor x = input({8, 20});
  const Tensor w = variable({20, 24}, "w");
  const Tensor u = variable({20, 24}, "u");
  const Tensor flat = ops::reshape(w, {480});
  const Tensor alias = ops::flatten_(u);
  show(ops::relu(ops::matmul(x, w)));
  ops::scaled_add_(w, ops::matmul(x, ops::matmul(x, w), kOfTransposed), 1.0, -0.01);
  show(flat);
  ops::add_(alias, main.scalar(0.5, f32));
  show(ops::matmul(x, u));
  ops::scaled_add_(u, ops::matmul(x, ops::matmul(x, u), kOfTransposed), 1.0, -0.01);
  show(alias);
  const Tensor part = ops::slice_(u, {0, 0}, {20, 12});
  ops::add_(part, main.scalar(1, f32));
  show(ops::matmul(x, u));
  check();
}

// A handle of another shape on the same bytes. Panels would place its elements elsewhere, so the
// layout must be rows.
TEST_F(Fusion, AliasesOfAnotherShape) {
  const Tensor x = input({5, 24});
  const Tensor z = input({5, 18});
  const Tensor w = variable({18, 24}, "w");
  const Tensor reshaped = ops::reshape_(w, {24, 18});
  show(ops::gelu(ops::matmul(x, reshaped)));
  show(ops::relu(ops::matmul(z, w)));
  ops::scaled_add_(reshaped, ops::matmul(x, z, kOfTransposed), 1.0, -0.125);
  ops::scaled_add_(w, ops::matmul(z, x, kOfTransposed), 1.0, -0.125);
  const Tensor square = variable({24, 24}, "square");
  const Tensor wide = ops::reshape_(square, {12, 48});
  show(ops::matmul(x, square) + ops::tanh(ops::matmul(x, square)));
  ops::add_(wide, ops::tanh(wide));
  show(ops::matmul(x, square * 0.5));
  const Tensor y = ops::matmul(x, square);
  const Tensor line = ops::reshape_(y, {24, 5});
  show(ops::relu(line) * 2.0);
  show(ops::add_(line, ops::matmul(ops::reshape(x, {24, 5}),
                                   main.constant(HostTensor(f32_spec({5, 5})), "c"))));
  show(y);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("w"), "row");
  EXPECT_EQ(effect.layouts.at("square"), "row");
}

// Values have the panel layout of a weight that they depend on. The ops that overwrite them cannot
// run on panels.
TEST_F(Fusion, ValuesMadeOfWeightsAndOverwritten) {
  const Tensor x = input({5, 18});
  const Tensor w = variable({18, 24}, "w");
  const Tensor b = variable({24}, "b");
  Graph& bump = program.ir.create_graph("bump", [](Graph& g) {
    const Tensor t = g.input(f32_spec({18, 24}), "t", Pass::kByReference);
    const Tensor b = g.input(f32_spec({24}), "b");
    ops::add_(t, b);
    return ops::softmax(t);
  });
  show(ops::matmul(x, w));
  const auto made = [&](double factor) {
    const Tensor t = w * factor;
    show(ops::matmul(x, t));
    return t;
  };
  const Tensor a = made(0.5);
  ops::add_(a, b);
  show(ops::matmul(x, a));
  const Tensor c = made(0.25);
  const Tensor reshaped = ops::reshape_(c, {24, 18});
  ops::relu_(reshaped);
  show(ops::matmul(x, c));
  show(reshaped);
  const Tensor d = made(0.125);
  show(ops::call(main, bump, {d, b})[0]);
  show(ops::call(main, bump, {a, b})[0]);
  show(ops::matmul(x, d));
  const Tensor e = made(2.0);
  ops::add_(ops::slice_(e, {0, 0}, {9, 24}), b);
  show(ops::matmul(x, e));
  const Tensor f = made(3.0);
  const Tensor rows = ops::softmax(w * 4.0);
  ops::add_(f, w);
  ops::add_(rows, f);
  show(ops::matmul(x, f));
  show(rows);
  ops::add_(w, w * 0.5);
  check();
}

// One kernel computes a value and updates a weight in panels. The op that overwrites the value
// cannot run on panels.
TEST_F(Fusion, ResultsBesideAnUpdate) {
  const Tensor x = input({5, 18});
  const Tensor dy = input({5, 24});
  const Tensor w = variable({18, 24}, "w");
  show(ops::matmul(x, w));
  for (const bool by_alias : {false, true}) {
    const Tensor gradient = ops::matmul(x, dy, kOfTransposed) * 0.125;
    const Tensor state = gradient * 0.5;
    ops::accumulate_(state, gradient, 0.5);
    ops::scaled_add_(w, ops::adam_updater(gradient, ops::abs(state)), 1.0, -0.01);
    if (by_alias) {
      ops::relu_(ops::reshape_(state, {24, 18}));
    } else {
      ops::copy_var_update_(state, ops::softmax(state));
    }
    show(state);
  }
  EXPECT_EQ(check().layouts["w"], "panels32");
}

// The result of a convolution is not written where an update still reads its operand.
TEST_F(Fusion, UpdatesByAConvolution) {
  const Tensor x = input({2, 3, 9, 7});
  const Tensor k = variable({6, 3, 3, 3}, "k");
  const Tensor sum = variable({2, 6, 9, 7}, "sum");
  const Tensor state = variable({2, 6, 9, 7}, "state");
  const ops::ConvOptions same{.padding = {1, 1}};
  ops::add_(sum, ops::conv(x, k, same));
  const Tensor y = ops::tanh(ops::conv(x, k, same));
  ops::scaled_add_(state, y, 1.0, -0.125);
  show(y);
  EXPECT_EQ(check().fused, 1) << "conv, tanh";
}

TEST_F(Fusion, ResultsThatNobodyReads) {
  const Tensor x = input({8, 20});
  const Tensor w = variable({20, 24}, "w");
  const Tensor y = ops::matmul(x, w);
  ops::relu(y + 1.0);
  ops::gelu(ops::matmul(x, w));
  const Tensor t = ops::tanh(y);
  ops::add_(t, y);
  ops::relu_(ops::matmul(x, w));
  show(y);
  check();
}

}  // namespace
}  // namespace sluice::test
