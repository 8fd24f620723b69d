#include "sluice/transforms/loops/loops.h"

#include <gtest/gtest.h>

#include "sluice/base/provenance.h"
#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/call.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice {
namespace {

HostTensor values(Shape shape, const std::vector<float>& of) {
  return HostTensor::of(std::move(shape), f32, of);
}

using Doubles = std::vector<double>;

// Programs that are run by the interpreter.
class Repeat : public testing::Test {
 protected:
  Doubles result(const D2hStream& stream, const std::vector<StreamInput>& inputs = {}) {
    verify(ir_);
    Interpreter interpreter(ir_);
    return interpreter.run(inputs)[stream].to_doubles();
  }
  Doubles variable(const Tensor& t) {
    verify(ir_);
    Interpreter interpreter(ir_);
    interpreter.run({});
    return interpreter.read(t).to_doubles();
  }
  size_t ops() const { return Ir(ir_).main_graph().ops().size(); }

  Ir ir_;
  Graph& main_ = ir_.main_graph();
  const Tensor x_ = main_.variable(values({2}, {1, 2}), "x");
  const Tensor w_ = main_.variable(values({2}, {10, 100}), "w");
  const Infeed pairs_ = ir_.infeed("pairs", {{"a", f32_spec({2})}, {"b", f32_spec({2})}});
};

TEST_F(Repeat, TakesTheArgumentsInAnyForm) {
  const auto fed = [&](const LoopBody& body) {
    return main_.host_store(ops::repeat(main_, 2, body, {x_}, pairs_)[0], "y");
  };
  const D2hStream together = fed([](const LoopArguments& in) { return in[0] + in[1] - in[2]; });
  const D2hStream by_name = fed([](const LoopArguments& in) {
    EXPECT_EQ(in.size(), 3u);
    return Tensors{in[0] + in["a"] - in["b"]};
  });
  const D2hStream in_turn = fed([](Tensor v, Tensor a, const Tensor& b) { return v + a - b; });
  verify(ir_);
  Interpreter interpreter(ir_);
  const HostTensor a = values({6, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const HostTensor b = values({6, 2}, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  const auto out = interpreter.run({{pairs_.streams[0], a}, {pairs_.streams[1], b}});
  EXPECT_EQ(out[together].to_doubles(), (Doubles{3, 6}));
  EXPECT_EQ(out[by_name].to_doubles(), (Doubles{9, 12}));
  EXPECT_EQ(out[in_turn].to_doubles(), (Doubles{15, 18}));
}

// The new value may be the element itself. A constant is one of the body, not a value from outside.
TEST_F(Repeat, ReturnsFieldsAndSharesConstants) {
  const Tensor factor = main_.constant(values({2}, {3, 4}), "factor");
  const Tensors last = ops::repeat(
      main_, 2,
      [&](Tensor, Tensor scaled, Tensor a, const Tensor& b) {
        return Tensors{std::move(a), std::move(scaled) * factor + b};
      },
      {x_, w_}, pairs_);
  EXPECT_EQ(main_.ops().back().inputs.size(), 2u);
  const D2hStream stored = main_.host_store(last[0], "last");
  EXPECT_EQ(result(stored, {{pairs_.streams[0], values({2, 2}, {1, 2, 3, 4})},
                            {pairs_.streams[1], values({2, 2}, {0, 0, 0, 0})}}),
            (Doubles{3, 4}));
  const Tensors same = ops::repeat(
      main_, 2, [](const Tensor&, Tensor a, const Tensor&) { return a; }, {x_}, pairs_);
  EXPECT_EQ(same.size(), 1u);
}

TEST_F(Repeat, UpdatesWhatTheGraphHas) {
  const Tensors none = ops::repeat(main_, 3, [this, calls = 0]() mutable {
    EXPECT_EQ(++calls, 1);
    ops::add_(x_, w_);
  });
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(ops(), 1u);
  EXPECT_EQ(variable(x_), (Doubles{31, 302}));
  EXPECT_EQ(variable(w_), (Doubles{10, 100}));
}

TEST_F(Repeat, CarriesValuesNotTensors) {
  // The body updates its argument in place, and reads the tensor that the argument came from.
  const Tensors last = ops::repeat(main_, 3,
                                   [&](Tensor v, Tensor u) {
                                     ops::add_(v, x_);
                                     return Tensors{u, v};
                                   },
                                   {x_, w_});
  ops::add_(x_, w_);
  const D2hStream a = main_.host_store(last[0], "a"), b = main_.host_store(last[1], "b");
  EXPECT_EQ(result(a), (Doubles{11, 102}));
  EXPECT_EQ(result(b), (Doubles{3, 6}));
  EXPECT_EQ(variable(x_), (Doubles{11, 102}));
}

TEST_F(Repeat, ReturnsConstantsAndOuterTensors) {
  const Tensor one = main_.constant(values({2}, {7, 8}), "seven");
  const Tensors last = ops::repeat(main_, 2,
                                   [&](Tensor, Tensor v, Tensor u) {
                                     return Tensors{one, w_, u + v};
                                   },
                                   {x_, x_, x_});
  const D2hStream a = main_.host_store(last[0], "a"), b = main_.host_store(last[1], "b"),
                  c = main_.host_store(last[2], "c");
  EXPECT_EQ(result(a), (Doubles{7, 8}));
  EXPECT_EQ(result(b), (Doubles{10, 100}));
  EXPECT_EQ(result(c), (Doubles{12, 104}));
}

TEST_F(Repeat, NestsAndIsTheUnrolledProgram) {
  const auto inner = [&](Tensor v) {
    ops::add_(x_, v * 0.25f);
    return v * 0.75f + w_;
  };
  const auto outer = [&](Tensor v) {
    const Tensor u = ops::repeat(main_, 3, inner, {v + x_})[0];
    return u - v;
  };
  const D2hStream nested = main_.host_store(ops::repeat(main_, 4, outer, {w_})[0], "nested");
  const auto looped = result(nested);
  const auto updated = variable(x_);

  Ir flat;
  Graph& main = flat.main_graph();
  const Tensor x = main.variable(values({2}, {1, 2}), "x");
  const Tensor w = main.variable(values({2}, {10, 100}), "w");
  Tensor v = w;
  for (int i = 0; i < 4; ++i) {
    Tensor u = v + x;
    for (int k = 0; k < 3; ++k) {
      ops::add_(x, u * 0.25f);
      u = u * 0.75f + w;
    }
    v = u - v;
  }
  const D2hStream y = main.host_store(v, "y");
  Interpreter interpreter(flat);
  EXPECT_EQ(interpreter.run({})[y].to_doubles(), looped);
  EXPECT_EQ(interpreter.read(x).to_doubles(), updated);
  EXPECT_EQ(ops(), 2u);
}

TEST_F(Repeat, WorksInASubgraph) {
  // The loop in the graph writes an input by reference, and an input by value of which the caller
  // must not see the write.
  Graph& g = ir_.create_graph(
      "g",
      [&](Graph& graph, Tensor sum, Tensor v) {
        return ops::repeat(graph, 3,
                           [&](Tensor u) {
                             ops::add_(sum, u);
                             ops::add_(v, u);
                             return u + v;
                           },
                           {v})[0];
      },
      NamedInput{"sum", f32_spec({2}), Pass::kByReference}, f32_spec({2}));
  const D2hStream out = main_.host_store(ops::call(main_, g, {w_, x_})[0], "out");
  // u: 1, 3, 8, 21; v: 2, 5, 13; twice that for the second element.
  EXPECT_EQ(result(out), (Doubles{21, 42}));
  EXPECT_EQ(variable(w_), (Doubles{22, 124}));
  EXPECT_EQ(variable(x_), (Doubles{1, 2}));
}

TEST_F(Repeat, MakesVariablesOfTheGraph) {
  Tensor total;
  ops::repeat(main_, 4, [&] {
    total = main_.variable(values({2}, {5, 6}), "total");
    ops::add_(total, x_);
  });
  EXPECT_EQ(variable(total), (Doubles{9, 14}));
}

TEST_F(Repeat, KnowsOtherNamesOfWhatItWrites) {
  const Tensor row = ops::reshape_(x_, {1, 2});
  const Tensor same = ops::add_(row, ops::reshape(w_, {1, 2}));
  ops::repeat(main_, 2, [&] {
    ops::add_(same, row);
    ops::add_(x_, w_);
  });
  EXPECT_EQ(variable(x_), (Doubles{74, 708}));
}

TEST_F(Repeat, ViewsWithOwnMemoryFollowInTheBody) {
  ops::repeat(main_, 2, [&] {
    const Tensor first = ops::slice_(x_, {0}, {1});
    ops::add_(x_, w_);
    ops::add_(first, first);
  });
  ops::add_(x_, w_);  // The view of the body does not follow.
  EXPECT_EQ(variable(x_), (Doubles{74, 302}));
  expect_refused({{"outside",
                   [&] {
                     const Tensor first = ops::slice_(x_, {0}, {1});
                     ops::repeat(main_, 2, [&] { ops::add_(x_, w_); });
                   },
                   "show the same elements"}});
}

TEST_F(Repeat, UsesRemoteBuffersAndStreams) {
  const RemoteBuffer buffer = ir_.remote_buffer(f32_spec({2}), 2);
  const D2hStream seen = ir_.d2h_stream(f32_spec({2}), "seen");
  const H2dStream in = ir_.h2d_stream(f32_spec({2}), "in");
  main_.remote_store(buffer, 1, main_.host_load(in));
  ops::repeat(main_, 3, [&] {
    const Tensor sum = main_.remote_load(buffer, 1) + main_.host_load(in);
    main_.remote_store(buffer, 1, sum);
    main_.host_store(seen, sum);
  });
  const D2hStream last = main_.host_store(main_.remote_load(buffer, 1) + main_.host_load(in), "y");
  const HostTensor entries = values({5, 2}, {1, 0, 2, 1, 3, 1, 4, 1, 100, 1});
  verify(ir_);
  Interpreter interpreter(ir_);
  const auto out = interpreter.run({{in, entries}});
  std::vector<Doubles> sums;
  for (const HostTensor& sum : out.entries(seen)) sums.push_back(sum.to_doubles());
  EXPECT_EQ(sums, (std::vector<Doubles>{{3, 1}, {6, 2}, {10, 3}}));
  EXPECT_EQ(out[last].to_doubles(), (Doubles{110, 4}));
}

TEST_F(Repeat, KeepsDevicesAndModulePaths) {
  main_.set_device(2);
  ops::repeat(main_, 2,
              [&](Tensor v) {
                const Graph::Scope scope(main_, "layer");
                const Tensor here = v + w_;
                main_.set_device(1);
                return here * w_;
              },
              {x_});
  EXPECT_EQ(main_.device(), 2);
  const Op& loop = main_.ops().back();
  EXPECT_EQ(loop.device, 2);
  EXPECT_EQ(loop.provenance->line.substr(0, 15), "repeat_test.cc:");
  const Graph& wrapper = ir_.graph(loop.callees[0]);
  const Graph& body = ir_.graph(wrapper.ops()[0].callees[0]);
  EXPECT_EQ(body.name(), "main_repeated_subgraph(0)");
  ASSERT_EQ(body.ops().size(), 2u);
  EXPECT_EQ(body.ops()[0].device, 2);
  EXPECT_EQ(body.ops()[1].device, 1);
  EXPECT_EQ(body.ops()[1].provenance->module_path, "layer");
  EXPECT_EQ(body.info(body.input_ids()[0]).name, "x");
}

TEST_F(Repeat, ZeroIterationsLeaveTheInputs) {
  const Tensors last = ops::repeat(
      main_, 0,
      [&](Tensor v, Tensor a, Tensor b) {
        ops::add_(w_, v);
        return v + a + b;
      },
      {x_}, pairs_);
  ops::add_(x_, x_);
  const D2hStream out = main_.host_store(last[0], "out");
  EXPECT_EQ(ops(), 3u);
  EXPECT_EQ(result(out), (Doubles{1, 2}));
  EXPECT_EQ(variable(w_), (Doubles{10, 100}));
  EXPECT_TRUE(ops::repeat(main_, 0, [&] { ops::add_(w_, x_); }).empty());
  EXPECT_EQ(ops(), 3u);
}

TEST_F(Repeat, Refusals) {
  const auto carry = [&](const LoopBody& body) {
    return [this, body] { ops::repeat(main_, 2, body, {x_}); };
  };
  const auto feed = [&](const LoopBody& body) {
    return [this, body] { ops::repeat(main_, 2, body, {x_}, pairs_); };
  };
  const auto same = [](Tensor v) { return v; };
  Ir other;
  const Infeed foreign = other.infeed("foreign", {{"x", f32_spec({2})}});
  const Tensor abroad = other.main_graph().variable(values({2}, {1, 2}), "abroad");
  Graph& g = ir_.create_empty_graph("g");
  const Tensor inner = g.input(f32_spec({2}), "inner");
  expect_refused({
      {"negative", [&] { ops::repeat(main_, -1, same, {x_}); },
       "n must be 0 to 2147483647, got -1"},
      {"too many", [&] { ops::repeat(main_, int64_t{1} << 31, same, {x_}); },
       "n must be 0 to 2147483647, got 2147483648"},
      {"input of another graph", [&] { ops::repeat(main_, 2, same, {inner}); },
       "input 0 must belong to graph main, got 'inner' of graph g_subgraph(0)"},
      {"empty input", [&] { ops::repeat(main_, 2, same, {Tensor()}); },
       "input 0 must be a tensor, got an empty handle"},
      {"too few results", carry([](Tensor) {}),
       "the body must return 1 tensor, one for each input, got 0; return the new value"},
      {"too many results", carry([](Tensor v) {
         return Tensors{v, v};
       }),
       "the body must return 1 tensor, one for each input, got 2"},
      {"dtype", carry([](Tensor v) { return ops::cast(v, f16); }),
       "result 0 of the body must be (2,) float32 like input 'x', got (2,) float16"},
      {"shape", carry([](Tensor v) {
         return ops::reshape(v, {2, 1});
       }),
       "result 0 of the body must be (2,) float32 like input 'x', got (2, 1) float32"},
      {"result of another graph", carry([&](Tensor) { return inner; }),
       "result 0 of the body must belong to graph main, got 'inner' of graph g_subgraph(0)"},
      {"result of another Ir", carry([&](Tensor) { return abroad; }),
       "result 0 of the body must belong to graph main, got 'abroad' of graph main of another Ir"},
      {"empty result", carry([](Tensor) { return Tensor(); }),
       "result 0 of the body must be a tensor, got an empty handle"},
      {"unread infeed", feed([](const LoopArguments& in) { return in[0]; }),
       "the body must read infeed 'pairs', got a body that reads none of its fields (a, b); read a "
       "field or pass no infeed"},
      {"unknown field", feed([](const LoopArguments& in) { return in["c"]; }),
       "a field of infeed 'pairs' must be one of a, b, got 'c'"},
      {"field without an infeed", carry([](const LoopArguments& in) { return in["a"]; }),
       "field 'a' must belong to an infeed, got none; pass an infeed to the loop"},
      {"argument", feed([](const LoopArguments& in) { return in[3]; }),
       "an argument of the body must be below 3, got 3; it has 1 carried value and 2 fields of "
       "infeed 'pairs' (a, b)"},
      {"parameters", feed([](Tensor v, Tensor) { return v; }),
       "the body must have 3 parameters, got 2: the arguments are 1 carried value and 2 fields of "
       "infeed 'pairs' (a, b)"},
      {"infeed of another Ir", [&] { ops::repeat(main_, 2, same, {x_}, foreign); },
       "infeed 'foreign' must belong to the Ir of graph main, got one of another Ir"},
      {"output in the body",
       [&] {
         ops::repeat(main_, 2,
                     [&](Tensor v) {
                       main_.add_output(v);
                       return v;
                     },
                     {x_});
       },
       "the outputs of graph main must be added outside the body, got 1 in it"},
      {"error of the body", carry([&](Tensor v) { return v + inner; }), "belongs to graph g"},
  });
  // The ops of the bodies are removed.
  EXPECT_EQ(ops(), 0u);
  EXPECT_TRUE(main_.outputs().empty());
  const D2hStream y =
      main_.host_store(ops::repeat(main_, 2, [](Tensor v) { return v + v; }, {x_})[0], "y");
  EXPECT_EQ(result(y), (Doubles{4, 8}));
}

TEST_F(Repeat, ATensorOfABodyStaysThere) {
  Tensor inside;
  ops::repeat(main_, 2, [&](Tensor v) { return inside = v + w_; }, {x_});
  const auto user = [&] { ops::add_(x_, inside); };
  const std::string text = "must be made by an op of graph main, got one that was moved or removed";
  expect_refused(
      {{"operand", user, text},
       {"result", [&] { ops::repeat(main_, 2, [&](Tensor) { return inside; }, {x_}); }, text}});
}

}  // namespace
}  // namespace sluice
