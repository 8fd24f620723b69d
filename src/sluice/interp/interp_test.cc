#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"

namespace sluice {
namespace {

HostTensor vec(const std::vector<float>& values) {
  return HostTensor::of<float>({static_cast<int64_t>(values.size())}, f32, values);
}
HostTensor number(int32_t value) { return HostTensor::of<int32_t>({}, i32, {value}); }

std::vector<double> values(const HostTensor& t) { return t.to_doubles(); }
using Doubles = std::vector<double>;

/// Returns the message of the usage error that `f` throws, or "" if it throws none.
template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Interpreter, RunsAnEntryOnStreams) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  const Tensor x = main.host_load(in);
  const D2hStream out = main.host_store(x + x, "out");
  EXPECT_EQ(values(Interpreter(ir).run({{in, vec({1, 2})}})[out]), (Doubles{2, 4}));
}

TEST(Interpreter, StreamEntriesAreReadInOrder) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({1}), "in");
  const Tensor a = main.host_load(in);
  const Tensor b = main.host_load(in);
  const D2hStream out = ir.d2h_stream(f32_spec({1}), "out");
  main.host_store(out, b);
  main.host_store(out, a);
  const auto sent = Interpreter(ir).run({{in, HostTensor::stack({vec({1}), vec({2})})}});
  ASSERT_EQ(sent.entries(out).size(), 2u);
  EXPECT_EQ(values(sent.entries(out)[0]), (Doubles{2}));
  EXPECT_EQ(values(sent.entries(out)[1]), (Doubles{1}));
}

TEST(Interpreter, RefusesWrongFeeds) {
  Ir ir;
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  ir.main_graph().host_load(in);
  Interpreter run(ir);
  EXPECT_NE(refusal([&] { run.run(); }).find("stream 'in': nothing is bound"), std::string::npos);
  EXPECT_NE(refusal([&] {
              run.run({{in, HostTensor(f32_spec({0, 2}))}});
            }).find("only 0 entries"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              run.run({{in, HostTensor::stack({vec({1, 2}), vec({3, 4})})}});
            }).find("must have 1 entries, got 2"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              run.run({{in, vec({1})}});
            }).find("must be (2,) float32"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              run.run({{in, vec({1, 2})}, {in, vec({1, 2})}});
            }).find("given twice"),
            std::string::npos);
  EXPECT_NE(refusal([&] { run.run({}, "other"); }).find("no entry graph 'other'"),
            std::string::npos);
}

TEST(Interpreter, EveryHandleOfAVariableSeesAnUpdate) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(vec({1, 2}), "w");
  const Tensor flat = ops::reshape_(w, {2, 1});
  Tensor updated = w;
  updated += w;
  const D2hStream old = main.host_store(w, "old");
  const D2hStream view = main.host_store(flat, "view");
  Interpreter run(ir);
  auto sent = run.run();
  EXPECT_EQ(values(sent[old]), (Doubles{2, 4}));
  EXPECT_EQ(values(sent[view]), (Doubles{2, 4}));
  EXPECT_EQ(sent[view].shape(), (Shape{2, 1}));
  sent = run.run();
  EXPECT_EQ(values(sent[old]), (Doubles{4, 8}));
  EXPECT_EQ(values(run.read(w)), (Doubles{4, 8}));
  run.write(w, vec({0, 1}));
  EXPECT_EQ(values(run.run()[old]), (Doubles{0, 2}));
}

TEST(Interpreter, AViewWithoutUnderscoreKeepsTheOldValue) {
  Ir ir;
  Graph& main = ir.main_graph();
  Tensor w = main.variable(vec({1, 2}), "w");
  const Tensor before = ops::reshape(w, {2, 1});
  w += w;
  const D2hStream out = main.host_store(before, "out");
  EXPECT_EQ(values(Interpreter(ir).run()[out]), (Doubles{1, 2}));
}

TEST(Interpreter, EntriesShareVariables) {
  Ir ir;
  Tensor w = ir.main_graph().variable(vec({1}), "w");
  Graph& eval = ir.entry_graph("eval");
  const D2hStream out = eval.host_store(ir.share_variable(w, eval), "out");
  const Tensor original = w;
  w += w;
  Interpreter run(ir);
  run.run();
  EXPECT_EQ(values(run.run({}, "eval")[out]), (Doubles{2}));
  EXPECT_EQ(values(run.read(original)), (Doubles{2}));
}

/// A graph that computes x += x in place and returns x.
Graph& doubling_graph(Ir& ir, Pass pass) {
  return ir.create_graph(
      "double",
      [](Graph&, Tensor x) {
        x += x;
        return x;
      },
      NamedInput{"x", f32_spec({1}), pass});
}

TEST(Interpreter, CallsCopyUnlessByReference) {
  for (const Pass pass : {Pass::kByValue, Pass::kByReference}) {
    Ir ir;
    Graph& main = ir.main_graph();
    Graph& twice = doubling_graph(ir, pass);
    const Tensor w = main.variable(vec({3}), "w");
    const D2hStream result = main.host_store(ops::call(main, twice, {w})[0], "result");
    Interpreter run(ir);
    EXPECT_EQ(values(run.run()[result]), (Doubles{6}));
    EXPECT_EQ(values(run.read(w)), (pass == Pass::kByValue ? Doubles{3} : Doubles{6}));
  }
}

TEST(Interpreter, ACallsResultIsNotItsArgument) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& same = ir.create_graph(
      "same",
      [](Graph&, Tensor x) {
        return Tensors{x, x};
      },
      f32_spec({1}));
  const Tensor w = main.variable(vec({3}), "w");
  Tensors y = ops::call(main, same, {w});
  y[0] += y[0];
  const D2hStream second = main.host_store(y[1], "second");
  Interpreter run(ir);
  EXPECT_EQ(values(run.run()[second]), (Doubles{3}));
  EXPECT_EQ(values(run.read(w)), (Doubles{3}));
}

TEST(Interpreter, RepeatCarriesAllAtOnce) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& swap = ir.create_graph(
      "swap",
      [](Graph&, Tensor a, Tensor b) {
        return Tensors{b, a};
      },
      f32_spec({1}), f32_spec({1}));
  const Tensor a = main.variable(vec({1}), "a");
  const Tensor b = main.variable(vec({2}), "b");
  const Tensors odd = ops::repeat(main, swap, 3, {a, b});
  const Tensors none = ops::repeat(main, swap, 0, {a, b});
  const D2hStream o = main.host_store(odd[0], "odd");
  const D2hStream n = main.host_store(none[0], "none");
  const auto sent = Interpreter(ir).run();
  EXPECT_EQ(values(sent[o]), (Doubles{2}));
  EXPECT_EQ(values(sent[n]), (Doubles{1}));
}

TEST(Interpreter, RepeatGivesTheIterationAndAccumulatesByReference) {
  Ir ir;
  Graph& main = ir.main_graph();
  Tensor iteration;
  Graph& body = ir.create_graph(
      "body",
      [&](Graph&, Tensor total, Tensor sum, Tensor i) {
        iteration = i;
        sum += i;
        return total + i;
      },
      NamedInput{"total", i32_spec({})}, NamedInput{"sum", i32_spec({}), Pass::kByReference},
      NamedInput{"i", i32_spec({})});
  const Tensor total = main.variable(number(100), "total");
  const Tensor sum = main.variable(number(0), "sum");
  const Tensors y = ops::repeat(main, body, 5, {total, sum}, {}, {.iteration = iteration});
  const D2hStream out = main.host_store(y[0], "out");
  Interpreter run(ir);
  EXPECT_EQ(values(run.run()[out]), (Doubles{110}));
  EXPECT_EQ(values(run.read(sum)), (Doubles{10}));
  EXPECT_EQ(values(run.read(total)), (Doubles{100}));
}

TEST(Interpreter, AnInvariantByValueIsTheSameInEveryIteration) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& body = ir.create_graph(
      "body",
      [](Graph&, Tensor carried, Tensor invariant) {
        invariant += invariant;
        return carried + invariant;
      },
      f32_spec({1}), f32_spec({1}));
  const Tensor zero = main.variable(vec({0}), "zero");
  const Tensor one = main.variable(vec({1}), "one");
  const D2hStream out = main.host_store(ops::repeat(main, body, 3, {zero, one})[0], "out");
  EXPECT_EQ(values(Interpreter(ir).run()[out]), (Doubles{6}));
}

TEST(Interpreter, OnlyTheTakenBranchRuns) {
  Ir ir;
  Graph& main = ir.main_graph();
  const D2hStream side = ir.d2h_stream(f32_spec({1}), "side");
  Graph& yes = ir.create_graph(
      "yes",
      [&](Graph& g, Tensor x) {
        g.host_store(side, x);
        return x + x;
      },
      f32_spec({1}));
  Graph& no = ir.create_graph(
      "no", [](Graph&, Tensor x) { return x; }, f32_spec({1}));
  const H2dStream which = ir.h2d_stream({{}, boolean, {}}, "which");
  const Tensor w = main.variable(vec({4}), "w");
  const D2hStream out =
      main.host_store(ops::conditional(main, main.host_load(which), yes, no, {w}, {w})[0], "out");
  Interpreter run(ir);
  auto sent = run.run({{which, HostTensor::of<bool>({}, boolean, {true})}});
  EXPECT_EQ(values(sent[out]), (Doubles{8}));
  EXPECT_EQ(sent.entries(side).size(), 1u);
  sent = run.run({{which, HostTensor::of<bool>({}, boolean, {false})}});
  EXPECT_EQ(values(sent[out]), (Doubles{4}));
  EXPECT_TRUE(sent.entries(side).empty());
}

TEST(Interpreter, RemoteEntriesKeepWhatIsStored) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 3);
  const H2dStream where = ir.h2d_stream(i32_spec({}), "where");
  const Tensor entry = main.host_load(where);
  const Tensor x = main.remote_load(buffer, entry);
  main.remote_store(buffer, 0, x + x);
  const D2hStream out = main.host_store(main.remote_load(buffer, 0), "out");
  Interpreter run(ir);
  run.write_remote(buffer, 2, vec({5, 6}));
  EXPECT_EQ(values(run.run({{where, number(2)}})[out]), (Doubles{10, 12}));
  EXPECT_EQ(values(run.read_remote(buffer, 0)), (Doubles{10, 12}));
  EXPECT_EQ(values(run.read_remote(buffer, 1)), (Doubles{0, 0}));
  const std::string text = refusal([&] { run.run({{where, number(3)}}); });
  EXPECT_NE(text.find("entry 3 is outside its 3 entries"), std::string::npos) << text;
  EXPECT_NE(text.find("running RemoteLoad."), std::string::npos) << text;
}

TEST(Interpreter, AnEntryIsLoadedOverATensor) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}));
  ir.grow(buffer, 2);
  const Tensor x = main.constant(vec({1, 2}), "x");
  const Tensor y = x + x;
  main.remote_store(buffer, 1, x);
  const Tensor loaded = main.remote_load_(buffer, 1, y);
  const D2hStream named = main.host_store(y, "y");
  const D2hStream out = main.host_store(loaded + x, "out");
  Interpreter run(ir);
  const auto sent = run.run();
  EXPECT_EQ(values(sent[named]), (Doubles{1, 2})) << "y names what was written over it";
  EXPECT_EQ(values(sent[out]), (Doubles{2, 4}));
}

TEST(Interpreter, AVariableMayLiveInARemoteBuffer) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 1);
  VariableInfo info;
  info.initializer = Initializer::array(vec({1, 2}));
  info.location = {buffer.id, 0};
  const Tensor w = main.variable(f32_spec({2}), info, "w");
  const Tensor local = main.remote_load(buffer, 0);
  main.remote_store(buffer, 0, local + local);
  Interpreter run(ir);
  run.run();
  run.run();
  EXPECT_EQ(values(run.read(w)), (Doubles{4, 8}));
}

TEST(Interpreter, InitFillsAndUninitialisedMemoryIsNoticed) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto init = [&](double value, bool undefined) {
    return main.emit(
        *ops::find_op("Init"), {},
        to_attrs(builtin::InitOptions{.shape = {2}, .value = value, .undefined = undefined}))[0];
  };
  const D2hStream filled = main.host_store(init(2.5, false), "filled");
  const D2hStream undefined = main.host_store(init(0, true), "undefined");
  const auto sent = Interpreter(ir).run();
  EXPECT_EQ(values(sent[filled]), (Doubles{2.5, 2.5}));
  EXPECT_TRUE(std::isnan(values(sent[undefined])[0]));
}

TEST(Interpreter, HalvesAreRoundedOncePerOpInFloatAndNeverInDouble) {
  Ir ir;
  const TensorSpec half{{1}, f16, {}};
  Graph& g = ir.create_graph(
      "sum", [](Graph&, Tensor a, Tensor b) { return a + b; }, half, half);
  const std::vector<HostTensor> in{vec({2048}).cast(f16), vec({1}).cast(f16)};
  const HostTensor rounded = Interpreter(ir).evaluate(g, in)[0];
  EXPECT_EQ(rounded.dtype(), f16);
  EXPECT_EQ(values(rounded), (Doubles{2048}));
  const HostTensor exact = Interpreter(ir, Precision::kDouble).evaluate(g, in)[0];
  EXPECT_EQ(exact.dtype(), f64);
  EXPECT_EQ(values(exact), (Doubles{2049}));
}

TEST(Interpreter, DenormalsAreFlushedInFloat) {
  Ir ir;
  Graph& g = ir.create_graph(
      "product", [](Graph&, Tensor a, Tensor b) { return a * b; }, f32_spec({1}), f32_spec({1}));
  const std::vector<HostTensor> in{vec({0x1p-100f}), vec({0x1p-40f})};
  EXPECT_EQ(values(Interpreter(ir).evaluate(g, in)[0]), (Doubles{0}));
  EXPECT_EQ(values(Interpreter(ir, Precision::kDouble).evaluate(g, in)[0]), (Doubles{0x1p-140}));
  volatile float small = 0x1p-100f;
  EXPECT_NE(small * 0x1p-40f, 0.0f) << "the caller's mode came back";
}

TEST(Interpreter, ObserverSeesEveryOp) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(vec({1, 2}), "w");
  main.host_store(ops::sum(w * w), "out");
  Interpreter run(ir);
  std::vector<std::string> seen;
  run.observe([&](const Graph&, const Op& op, const std::vector<HostTensor>& outputs) {
    seen.push_back(op.def->type + " " + std::to_string(outputs.size()));
  });
  run.run();
  EXPECT_EQ(seen, (std::vector<std::string>{"Mul 1", "ReduceSum 1", "HostStore 0"}));
}

TEST(Interpreter, RefusesStrangers) {
  Ir ir;
  const Tensor c = ir.main_graph().constant(vec({1}), "c");
  Interpreter run(ir);
  EXPECT_NE(refusal([&] { run.write(c, vec({1})); }).find("'c' is not a variable"),
            std::string::npos);
  const Tensor w = ir.main_graph().variable(vec({1}), "w");
  EXPECT_NE(refusal([&] { run.write(w, vec({1, 2})); }).find("variable 'w'"), std::string::npos);
}

/// Gradient descent with the gradient from the loss op reduces the cross entropy of a linear layer.
TEST(Interpreter, TrainsALinearLayer) {
  Ir ir;
  Graph& main = ir.main_graph();
  const HostTensor x = HostTensor::of<float>({4, 2}, f32, {1, 0, 0, 1, 1, 1, -1, 0});
  const Tensor input = main.constant(x, "x");
  const Tensor labels = main.constant(HostTensor::of<int32_t>({4}, i32, {0, 1, 2, 1}), "labels");
  Tensor w = main.variable(HostTensor(f32_spec({2, 3})), "w");
  const auto [loss, d] = ops::cross_entropy_with_grad(ops::matmul(input, w), labels);
  w += ops::matmul(input, d, {.lhs_transposed = true}) * -1.0;
  const D2hStream out = main.host_store(loss, "loss");
  Interpreter run(ir);
  double previous = std::numeric_limits<double>::infinity();
  for (int step = 0; step < 20; ++step) {
    const double now = values(run.run()[out])[0];
    EXPECT_LT(now, previous);
    previous = now;
  }
  EXPECT_LT(previous, 0.6);
}

TEST(RunOp, UpdatesGiveTheWrittenValueAndLeaveTheArgument) {
  const HostTensor a = vec({1, 2});
  const OpDef& add = *ops::find_op("AddLhsInplace");
  const auto y = run_op(add, add.options, {a, vec({10, 20})}, Precision::kFloat);
  EXPECT_EQ(values(y[0]), (Doubles{11, 22}));
  EXPECT_EQ(values(a), (Doubles{1, 2}));
}

TEST(Interpreter, RefusesWhatItWasNotMadeFor) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor c = main.constant(vec({1}), "c");
  const D2hStream unused = ir.d2h_stream(f32_spec({1}), "unused");
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({1}), 2);
  const RemoteBuffer foreign = Ir().remote_buffer(f32_spec({1}), 9);
  const H2dStream in = Ir().h2d_stream(f32_spec({1}), "in");
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return x; }, f32_spec({1}));
  Interpreter run(ir);
  const Collected nothing = run.run();
  const OpDef& add = *ops::find_op("Add");
  expect_refused({
      {"an output that was not written", [&] { nothing[unused]; },
       "stream 'unused': the run sent nothing to it"},
      {"reading a constant", [&] { run.read(c); }, "read: 'c' is not a variable"},
      {"a remote entry", [&] { run.read_remote(buffer, 2); },
       "remote buffer 1: entry 2 is outside its 2 entries"},
      {"a remote array",
       [&] {
         run.write_remote(buffer, 0, vec({1, 2}));
       },
       "remote buffer 1: the array must be (1,) float32, got (2,) float32"},
      {"a remote buffer of another program", [&] { run.read_remote(foreign, 0); },
       "remote buffer 1 belongs to another Ir"},
      {"a stream of another program",
       [&] {
         run.run({{in, vec({1})}});
       },
       "stream 'in' belongs to another Ir"},
      {"too few arrays", [&] { run.evaluate(f, {}); },
       "evaluate: graph f_subgraph(0) must get 1 arrays, got 0"},
      {"an array of another shape",
       [&] {
         run.evaluate(f, {vec({1, 2})});
       },
       "the array must be (1,) float32, got (2,) float32"},
      {"arrays without specs",
       [&] {
         run_op(add, add.options, {f32_spec({1})}, {vec({1}), vec({1})}, Precision::kFloat);
       },
       "add: must have one array for each of 1 specs, got 2"},
      {"an array that is not its spec",
       [&] {
         run_op(add, add.options, {f32_spec({2}), f32_spec({2})}, {vec({1}), vec({1, 2})},
                Precision::kFloat);
       },
       "add: the array of operand 0 must be (2,) float32, got (1,) float32"},
  });
}

TEST(RunOp, RefusesStructuralOps) {
  EXPECT_NE(refusal([] {
              run_op(builtin::init(), builtin::init().options, {}, Precision::kFloat);
            }).find("kernel"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice
