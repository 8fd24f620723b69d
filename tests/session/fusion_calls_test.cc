// As fusion_test.cc, for weights that functions, loops, branches, other entries and other devices
// use.

#include "fusion_program.h"

namespace sluice::test {
namespace {

// --- functions, loops, branches

TEST_F(Fusion, WeightsPassedToFunctions) {
  Graph& layer = program.ir.create_graph("layer", [](Graph& g) {
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor w = g.input(f32_spec({20, 20}), "w");
    const Tensor b = g.input(f32_spec({20}), "b");
    return ops::gelu(ops::matmul(x, w) + b);
  });
  Graph& update = program.ir.create_graph("update", [](Graph& g) {
    const Tensor w = g.input(f32_spec({20, 20}), "w", Pass::kByReference);
    const Tensor m = g.input(f32_spec({20, 20}), "m", Pass::kByReference);
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor dy = g.input(f32_spec({6, 20}), "dy");
    const Tensor dx = ops::relu(ops::matmul(dy, w, kByTransposed));
    ops::accumulate_moving_average_(m, ops::matmul(x, dy, kOfTransposed), 0.5);
    ops::scaled_add_(w, m, 1.0, -0.125);
    return dx;
  });
  const Tensor x = input({6, 20});
  const Tensor a = variable({20, 20}, "a");
  const Tensor b = variable({20, 20}, "b");
  const Tensor ma = variable({20, 20}, "ma");
  const Tensor mb = variable({20, 20}, "mb");
  const Tensor bias = variable({20}, "bias");
  const Tensor h = ops::call(main, layer, {x, a, bias})[0];
  const Tensor y = ops::call(main, layer, {h, b, bias})[0];
  const Tensor late = ops::call(main, layer, {y, a * 0.5, bias})[0];
  const Tensor dh = ops::call(main, update, {b, mb, h, y})[0];
  show(ops::call(main, update, {a, ma, x, dh})[0]);
  show(late);
  const Effect effect = check();
  for (const char* path : {"a", "b", "ma", "mb"})
    EXPECT_EQ(effect.layouts.at(path), "panels32") << path;
}

// One function gets a weight in panels, a weight in rows, and a computed value.
TEST_F(Fusion, OneFunctionOnSeveralLayouts) {
  Graph& layer = program.ir.create_graph("layer", [](Graph& g) {
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor w = g.input(f32_spec({20, 20}), "w", Pass::kByReference);
    const Tensor y = ops::matmul(x, w);
    ops::scaled_add_(w, ops::matmul(x, y, kOfTransposed), 1.0, -0.01);
    return y;
  });
  const Tensor x = input({6, 20});
  const Tensor panels = variable({20, 20}, "panels");
  const Tensor rows = variable({20, 20}, "rows");
  const Tensor made = panels + 1.0;
  show(ops::call(main, layer, {x, panels})[0]);
  show(ops::call(main, layer, {x, rows})[0]);
  show(ops::call(main, layer, {x, made})[0]);
  show(ops::softmax(rows));
  show(made);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("panels"), "panels32");
  EXPECT_EQ(effect.layouts.at("rows"), "row");
}

// A value that a loop reads in another layout is converted once, before the loop.
TEST_F(Fusion, ConversionsBeforeLoops) {
  Graph& body = program.ir.create_graph("body", [](Graph& g) {
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor scale = g.input(f32_spec({20, 20}), "scale");
    return ops::tanh(ops::matmul(x, ops::transpose(scale)));
  });
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 20}, "w");
  show(ops::matmul(x, w));
  show(ops::repeat(main, body, 5, {x, w * 0.25})[0]);
  EXPECT_EQ(check().layouts.at("w"), "panels32");
  const exe::Executable executable = property::compiled(program.ir, 1).executable;
  EXPECT_EQ(effect_of(executable).copies, 2) << "that, and the first of the carried values";
  for (const exe::Function& f : executable.functions) {
    const bool is_main = &f == &executable.functions.back();
    for (const exe::Step& step : f.steps) {
      const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
      EXPECT_TRUE(is_main || kernel == nullptr || kernel->key != "cpu.copy");
    }
  }
}

TEST_F(Fusion, LoopsByValueAndByReference) {
  Graph& body = program.ir.create_graph("body", [](Graph& g) {
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor carried = g.input(f32_spec({20, 20}), "carried");
    const Tensor w = g.input(f32_spec({20, 20}), "w");
    const Tensor u = g.input(f32_spec({20, 20}), "u", Pass::kByReference);
    const Tensor y = ops::tanh(ops::matmul(x, w) + ops::matmul(x, carried));
    ops::scaled_add_(u, ops::matmul(x, y, kOfTransposed), 1.0, -0.125);
    return std::vector<Tensor>{ops::relu(ops::matmul(y, u)), carried * 0.5 + u};
  });
  const Tensor x = input({6, 20});
  const Tensor carried = variable({20, 20}, "carried");
  const Tensor w = variable({20, 20}, "w");
  const Tensor u = variable({20, 20}, "u");
  for (const int64_t trips : {3, 0, 1}) {
    const Tensors last = ops::repeat(main, body, trips, {x, carried, w, u});
    show(last[0]);
    ops::scaled_add_(carried, last[1], 0.5, 0.25);
    show(ops::matmul(x, carried));
  }
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("w"), "panels32");
  EXPECT_EQ(effect.layouts.at("u"), "panels32");
}

TEST_F(Fusion, CarriedWeightsByReference) {
  Graph& body = program.ir.create_graph("body", [](Graph& g) {
    const Tensor w = g.input(f32_spec({20, 20}), "w", Pass::kByReference);
    const Tensor x = g.input(f32_spec({6, 20}), "x");
    const Tensor dw = ops::matmul(x, ops::matmul(x, w), kOfTransposed);
    ops::scaled_add_(w, dw, 1.0, -0.01);
    return w * 0.75;
  });
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 20}, "w");
  const Tensor last = ops::repeat(main, body, 3, {w, x})[0];
  show(ops::matmul(x, w) + ops::matmul(x, last));
  check();
}

TEST_F(Fusion, Branches) {
  const auto arm = [&](const char* name, bool by_rows) -> Graph& {
    return program.ir.create_graph(name, [by_rows](Graph& g) {
      const Tensor x = g.input(f32_spec({6, 20}), "x");
      const Tensor w = g.input(f32_spec({20, 20}), "w");
      const Tensor u = g.input(f32_spec({20, 20}), "u");
      return by_rows ? ops::softmax(ops::matmul(x, w) + 1.0)
                     : ops::matmul(x, ops::relu(w)) - ops::matmul(x, u);
    });
  };
  Graph& then_graph = arm("then", true);
  Graph& else_graph = arm("else", false);
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 20}, "w");
  const Tensor u = variable({20, 20}, "u");
  for (const bool way : {true, false}) {
    const Tensor condition = ops::greater(ops::mean(x), main.scalar(way ? -9 : 9, f32));
    show(ops::conditional(main, condition, then_graph, else_graph, {x, w, u}, {x, u, w})[0]);
    ops::scaled_add_(w, ops::matmul(x, x, kOfTransposed), 1.0, 0.125);
  }
  check();
}

// --- entries, streams, remote buffers, devices

TEST_F(Fusion, EntriesThatUseAVariableDifferently) {
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 24}, "w");
  const Tensor shown = variable({20, 24}, "shown");
  const Tensor m = variable({20, 24}, "m");
  const Tensor y = ops::relu(ops::matmul(x, w));
  const Tensor z = ops::relu(ops::matmul(x, shown));
  ops::scaled_add_(m, ops::matmul(x, y, kOfTransposed), 0.5, 1.0);
  ops::scaled_add_(w, m, 1.0, -0.0625);
  ops::scaled_add_(shown, m, 1.0, -0.0625);
  show(z);
  Graph& eval = program.ir.entry_graph("eval");
  const Tensor w_there = program.ir.share_variable(w, eval);
  const Tensor shown_there = program.ir.share_variable(shown, eval);
  show(ops::matmul(w_there, shown_there, kByTransposed) * 0.5);
  show(shown_there);
  Graph& reset = program.ir.entry_graph("reset");
  ops::accumulator_zero_(program.ir.share_variable(m, reset));
  program.runs = {"main", "eval", "main", "reset", "main", "eval"};
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("shown"), "row");
}

TEST_F(Fusion, StreamsAndRemoteBuffersAreRowMajor) {
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 24}, "w");
  const RemoteBuffer shelf = program.ir.remote_buffer(f32_spec({20, 24}), 2);
  main.remote_store(shelf, 0, w * 0.5);
  const Tensor fresh = input({20, 24});
  show(ops::relu(ops::matmul(x, w)));
  ops::copy_var_update_(w, fresh);
  const Tensor back = main.remote_load(shelf, 0);
  ops::scaled_add_(w, back, 1.0, 0.5);
  ops::add_(back, w);
  main.remote_store(shelf, 1, back);
  show(w + 1.0);
  show(ops::matmul(x, back));
  check();
}

TEST_F(Fusion, ValuesInPanelsBetweenDevices) {
  main.set_device(0);
  const Tensor x = input({6, 20});
  const Tensor w = variable({20, 24}, "w");
  show(ops::relu(ops::matmul(x, w)));
  const Tensor made = ops::tanh(w) * w;
  main.set_device(1);
  const Tensor far = made * 2.0 + w;
  const Tensor u = variable({20, 24}, "u");
  const Tensor y = ops::gelu(ops::matmul(ops::relu(x), u));
  ops::scaled_add_(u, far, 1.0, 0.25);
  main.set_device(0);
  ops::scaled_add_(w, far, 1.0, -0.125);
  show(ops::matmul(x, w) + y);
  check(2);
}

}  // namespace
}  // namespace sluice::test
