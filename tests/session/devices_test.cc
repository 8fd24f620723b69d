// Tests programs on several devices: messages in functions and loops, and variables that several
// devices use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "../property/random_graph_run.h"
#include "../support/mlp.h"
#include "../support/thread_sanitizer.h"
#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using property::RandomProgram;
using property::Way;

TensorSpec row() { return f32_spec({3, 5}); }

Tensor stored(Graph& g, const char* name, uint32_t key) {
  return g.variable(row(), Initializer::normal(0, 1).keyed({key, 9}), name);
}

struct Counts {
  int64_t steps = 0;
  int64_t slots = 0;  // Slots of all channels.
  int64_t sends = 0;
  int64_t functions = 0;
  bool operator==(const Counts&) const = default;
};

Counts counts_of(const exe::Executable& e) {
  Counts c;
  c.functions = static_cast<int64_t>(e.functions.size());
  for (const exe::Channel& channel : e.channels) c.slots += channel.capacity;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      ++c.steps;
      c.sends += std::holds_alternative<exe::Send>(step.body);
    }
  }
  return c;
}

std::vector<Way> ways(int devices) {
  return {
      {.threads = 1, .devices = devices},
      {.threads = 3, .devices = devices},
      {.interleaved = true, .devices = devices, .io_queues = 3},
      {.threads = 2, .disable = {"inline"}, .devices = devices},
      {.threads = 1, .disable = {"inline", "dead-code", "entries", "fuse"}, .devices = devices}};
}

// Checks that runs of a program have the interpreter's bits. It also verifies the plan, and
// compares planned with measured bytes on each device.
void expect_bits(const RandomProgram& program, const std::vector<Way>& ways) {
  const property::Outcome want = property::interpreted(program);
  EXPECT_FALSE(want.empty());
  for (const Way& way : ways)
    EXPECT_EQ(property::bit_difference(want, property::executed(program, way)), "") << way.text();
}

// Checks two runs of a program, compiled and run in several ways. Streams, variables and remote
// buffers must have the interpreter's bits. Also checks symbolically that the plan computes the
// program's values. Returns the plan without inlining.
exe::Executable expect_bits(const Ir& ir, int devices = 2) {
  const RandomProgram program{.ir = ir, .runs = {"main", "main"}};
  expect_bits(program, ways(devices));
  for (const std::vector<std::string>& disable : {{}, std::vector<std::string>{"inline"}}) {
    EXPECT_EQ(property::bit_difference(
                  property::interpreted(program, property::Remote::kShown),
                  property::by_values(program, property::compiled(ir, devices, disable))),
              "");
  }
  return property::compiled(ir, devices, {"inline"}).executable;
}

std::string refusal(const Ir& ir) {
  return error_of(ErrorKind::kUsage, [&] { property::compiled(ir, 2); });
}

TEST(Devices, RunOneFunctionEach) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor a, Tensor b) { return ops::tanh(a) * b + a; }, row(), row());
  const Tensor x = stored(main, "x", 1);
  const Tensor y = stored(main, "y", 2);
  const DeviceScope near(main, 0);
  const Tensor a = ops::call(main, f, {x, y})[0];
  const Tensor b = [&] {
    const DeviceScope far(main, 1);
    return ops::call(main, f, {a, y})[0];
  }();
  main.host_store(ops::call(main, f, {b, a})[0], "out");
  const Counts c = counts_of(expect_bits(ir));
  EXPECT_EQ(c.functions, 4);  // Functions f and main on each device.
  EXPECT_EQ(c.sends, 3);      // y and a go there, b comes back.
}

// Makes a function with ops on devices 0 and 1 and on the device of its caller.
Graph& far_and_back(Ir& ir) {
  Graph& f = ir.create_empty_graph("f");
  const Tensor a = f.input(row(), "a");
  const Tensor b = f.input(row(), "b");
  const Tensor near = ops::tanh(a) + b;
  f.set_device(1);
  const Tensor far = ops::exp(near) * b;
  f.set_device(0);
  const Tensor first = ops::sigmoid(far) - near;
  f.set_device(kInheritDevice);
  f.set_outputs({first + far, far});
  return f;
}

TEST(Devices, AreSetInsideSubgraphs) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& f = far_and_back(ir);
  Tensors t{stored(main, "x", 1), stored(main, "y", 2)};
  for (const int device : {0, 1, 0}) {
    main.set_device(device);
    t = ops::call(main, f, t);
    main.host_store(t[0], "out");
  }
  expect_bits(ir);
}

TEST(Devices, ShareAFunctionThatIsCalledTwice) {
  const auto program = [](int calls) {
    Ir ir;
    Graph& main = ir.main_graph();
    Graph& f = far_and_back(ir);
    Tensors t{stored(main, "x", 1), stored(main, "y", 2)};
    for (int i = 0; i < calls; ++i) t = ops::call(main, f, t);
    main.host_store(t[0] + t[1], "out");
    return counts_of(expect_bits(ir));
  };
  const Counts two = program(2);
  const Counts three = program(3);
  EXPECT_EQ(two.functions, 4);  // The parts of f and of main.
  EXPECT_EQ(three.functions, two.functions);
  EXPECT_EQ(three.slots, two.slots);
}

// Carries one value on each device through an outer and an inner loop. The loops swap the values.
Ir nested_loops(int64_t outer_trips, int64_t inner_trips) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& inner = ir.create_empty_graph("inner");
  {
    const Tensor a = inner.input(row(), "a");
    const Tensor b = inner.input(row(), "b");
    const Tensor c = inner.input(row(), "c");
    inner.set_device(0);
    const Tensor p = ops::tanh(a + c);
    inner.set_device(1);
    const Tensor q = ops::sigmoid(b * p);
    inner.set_device(0);
    inner.set_outputs({p - q * 0.5, q});
  }
  Graph& outer = ir.create_empty_graph("outer");
  {
    const Tensor a = outer.input(row(), "a");
    const Tensor b = outer.input(row(), "b");
    const Tensor c = outer.input(row(), "c");
    outer.set_device(1);
    const Tensor d = ops::tanh(c * b);
    const Tensors t = ops::repeat(outer, inner, inner_trips, {a, b, d});
    outer.set_device(0);
    outer.set_outputs({t[1] + a, t[0]});
  }
  const Tensor x = stored(main, "x", 1);
  const Tensors t = ops::repeat(main, outer, outer_trips, {x, stored(main, "y", 2), x});
  main.set_device(0);
  main.host_store(t[0], "a");
  main.host_store(t[1], "b");
  return ir;
}

TEST(Devices, CarryValuesThroughNestedLoops) { expect_bits(nested_loops(4, 3)); }

TEST(Devices, RunTenThousandIterationsWithTheStepsAndSlotsOfTen) {
  const Counts ten = counts_of(expect_bits(nested_loops(5, 2)));
  EXPECT_GT(ten.sends, 4);
  for (const Ir& ir : {nested_loops(5000, 2), nested_loops(2, 5000)})
    EXPECT_EQ(counts_of(property::compiled(ir, 2, {"inline"}).executable), ten);
  // Each message of devices with threads of their own wakes a thread.
  const bool slow = test::kThreadSanitizer || std::getenv("SLUICE_OPAQUE") != nullptr;
  const int64_t trips = slow ? 30 : 100;
  expect_bits({.ir = nested_loops(trips, trips), .runs = {"main"}}, {{.threads = 2, .devices = 2}});
}

// Carried values rotate between devices: the loop returns some of its inputs.
TEST(Devices, RotateCarriedValues) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& body = ir.create_empty_graph("turn");
  const Tensor a = body.input(row(), "a");
  const Tensor b = body.input(row(), "b");
  const Tensor c = body.input(row(), "c");
  body.set_device(0);
  const Tensor d = a * 0.5 + 1.0;
  body.set_device(1);
  const Tensor e = ops::tanh(b);
  body.set_outputs({b, c, d + e});
  const Tensors t = ops::repeat(main, body, 7,
                                {stored(main, "x", 1), stored(main, "y", 2), stored(main, "z", 3)});
  for (const Tensor& r : t) main.host_store(r, "out");
  expect_bits(ir);
}

TEST(Devices, UpdateVariablesThatAnotherHolds) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = stored(main, "w", 1);
  const Tensor v = stored(main, "v", 2);
  main.set_device(0);
  main.host_store(w, "before");
  main.set_device(1);
  ops::scaled_add_(w, v, 1.0, 0.25);  // Device 0 holds both: it makes their last values.
  ops::scaled_add_(w, w, 1.0, -0.5);
  main.set_device(0);
  ops::scaled_add_(v, w, 1.0, 0.125);
  main.host_store(w * v, "after");
  main.set_device(1);
  ops::copy_var_update_(w, ops::tanh(v));
  main.set_device(0);
  ops::scaled_add_(w, v, 1.0, 0.5);
  const exe::Executable e = expect_bits(ir);
  EXPECT_EQ(e.arenas[e.variables[exe::VariableId(0)].arena].device, 0);
  EXPECT_EQ(e.arenas[e.variables[exe::VariableId(1)].arena].device, 0);
}

TEST(Devices, UpdateVariablesInLoopsOfAnother) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = stored(main, "w", 1);
  Graph& body = ir.create_empty_graph("turn");
  const Tensor x = body.input(row(), "x");
  const Tensor total = body.input(row(), "total", Pass::kByReference);
  body.set_device(0);
  const Tensor y = ops::tanh(x + total);
  body.set_device(1);
  ops::scaled_add_(total, y, 0.5, 1.0);
  ops::scaled_add_(total, total, 1.0, -0.25);
  body.set_device(0);
  body.add_output(y * total);
  main.set_device(0);
  const Tensor last = ops::repeat(main, body, 6, {stored(main, "x", 2), w})[0];
  main.host_store(last + w, "out");
  expect_bits(ir);
}

TEST(Devices, PassArgumentsByReference) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& inner = ir.create_empty_graph("inner");
  {
    const Tensor a = inner.input(row(), "a", Pass::kByReference);
    const Tensor b = inner.input(row(), "b");
    inner.set_device(1);
    ops::scaled_add_(a, b, 1.0, 0.5);
  }
  Graph& outer = ir.create_empty_graph("outer");
  {
    const Tensor a = outer.input(row(), "a", Pass::kByReference);
    const Tensor b = outer.input(row(), "b", Pass::kByReference);
    outer.set_device(0);
    ops::scaled_add_(b, a, 0.5, 0.5);
    ops::call(outer, inner, {a, b});
    outer.set_device(1);
    ops::scaled_add_(b, a, 1.0, -1.0);
    outer.set_device(0);
    outer.add_output(a + b);
  }
  const Tensor w = stored(main, "w", 1);
  main.set_device(1);
  Tensor local = ops::exp(stored(main, "v", 2));
  main.host_store(ops::call(main, outer, {w, local})[0], "first");
  main.set_device(0);
  main.host_store(ops::call(main, outer, {local, w})[0], "second");
  main.host_store(local, "local");
  expect_bits(ir);
}

TEST(Devices, ReturnInputsAndConstants) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& f = ir.create_empty_graph("f");
  const Tensor a = f.input(row(), "a");
  const Tensor b = f.input(row(), "b");
  const Tensor c = f.constant(HostTensor(row()), "c");
  f.set_device(1);
  const Tensor d = ops::neg(a) + c;
  f.set_device(0);
  const Tensor e = ops::exp(b) + c;
  f.set_outputs({a, c, b, d + e, a});
  const Tensors t = ops::call(main, f, {stored(main, "x", 1), stored(main, "y", 2)});
  const Tensors again = ops::call(main, f, {t[4], t[1]});
  main.set_device(1);
  for (const Tensor& r : again) main.host_store(r, "out");
  main.host_store(t[3], "first");
  expect_bits(ir);
}

// Loop counters, and values computed from them, are computed on each device that reads them. No
// message carries them.
TEST(Devices, CountIterationsThemselves) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer shelf = ir.remote_buffer(row(), 6);
  Graph& body = ir.create_empty_graph("turn");
  const Tensor x = body.input(row(), "x");
  const Tensor at = body.input({{}, i32, {}}, "at");
  const Tensor iteration = body.input({{}, i32, {}}, "iteration");
  body.set_device(1);
  body.remote_store(shelf, at, x);
  const Tensor far = x * ops::cast(iteration, f32);
  body.set_device(0);
  const Tensor near = ops::tanh(far + ops::cast(at, f32));
  body.set_outputs({near, ops::increment_mod(at, 1, 6)});
  main.set_device(0);
  const Tensor first = main.scalar(2, i32, "at");
  const Tensor last =
      ops::repeat(main, body, 6, {stored(main, "x", 1), first}, {}, {.iteration = iteration})[0];
  main.host_store(last, "out");
  main.set_device(1);
  for (int64_t k = 0; k < 6; ++k) main.host_store(main.remote_load(shelf, k), "row");
  const exe::Executable e = expect_bits(ir);
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* send = std::get_if<exe::Send>(&step.body);
      if (send == nullptr) continue;
      EXPECT_EQ(send->operand.spec, row()) << f.name;
    }
  }
}

TEST(Devices, UseOneRemoteBuffer) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer shelf = ir.remote_buffer(row(), 4);
  Graph& body = ir.create_empty_graph("turn");
  const Tensor x = body.input(row(), "x");
  const Tensor iteration = body.input({{}, i32, {}}, "iteration");
  const Graph::IoScope overlapped(body, IoMode::kIoOverlapped);
  body.set_device(0);
  const Tensor w = body.remote_load(shelf, iteration);
  body.set_device(1);
  const Tensor y = ops::tanh(w + x);
  body.remote_store(shelf, iteration, y);
  const Tensor back = body.remote_load(shelf, iteration);
  body.set_device(0);
  body.add_output(back * 0.5 + w);
  main.set_device(1);
  main.remote_store(shelf, 3, ops::neg(stored(main, "x", 1)));
  const Tensor last =
      ops::repeat(main, body, 4, {stored(main, "y", 2)}, {}, {.iteration = iteration})[0];
  main.set_device(0);
  main.host_store(last + main.remote_load(shelf, 2), "out");
  const exe::Executable e = expect_bits(ir);
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* issue = std::get_if<exe::Issue>(&step.body);
      const bool remote = issue != nullptr && (issue->kind == exe::TransferKind::kRemoteLoad ||
                                               issue->kind == exe::TransferKind::kRemoteStore);
      EXPECT_TRUE(!remote || f.device == 1) << f.name;
    }
  }
}

TEST(Devices, UseOneStream) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(row(), "in");
  main.set_device(1);
  const Tensor first = main.host_load(in);
  const D2hStream out = main.host_store(first, "out");
  main.set_device(0);
  const Tensor second = ops::tanh(main.host_load(in)) + first;
  main.host_store(out, second);
  Graph& body = ir.create_empty_graph("turn");
  const Tensor x = body.input(row(), "x");
  body.set_device(0);
  const Tensor y = ops::tanh(body.host_load(in) + x);
  body.host_store(out, y);
  body.set_device(1);
  const Tensor z = y * body.host_load(in);
  body.host_store(out, z);
  body.add_output(z);
  main.host_store(out, ops::repeat(main, body, 3, {second})[0]);
  const exe::Executable e = expect_bits(ir);
  ASSERT_EQ(e.programs[0].streams.size(), 2u);
  EXPECT_EQ(e.programs[0].streams[0].entries, 8);
  EXPECT_EQ(e.programs[0].streams[1].entries, 9);
}

Ir conditional_on(int device, int then_device) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& then_graph = ir.create_empty_graph("then");
  Graph& else_graph = ir.create_empty_graph("else");
  for (Graph* g : {&then_graph, &else_graph}) {
    const Tensor x = g->input(row(), "x");
    g->set_device(g == &then_graph ? then_device : device);
    g->add_output(g == &then_graph ? ops::tanh(x) : ops::exp(x));
  }
  Graph& body = ir.create_empty_graph("turn");
  const Tensor x = body.input(row(), "x");
  body.set_device(0);
  const Tensor mean = ops::mean(x);
  const Tensor condition = ops::greater(mean, ops::scalar_like(mean, 0.25));
  const Tensor y = ops::conditional(body, condition, then_graph, else_graph, {x}, {x * 0.5})[0];
  body.add_output(y - 0.75);
  main.host_store(ops::repeat(main, body, 6, {stored(main, "x", 1)})[0], "out");
  return ir;
}

TEST(Devices, TakeBranchesOnAnother) {
  expect_bits(conditional_on(1, 1));
  expect_bits(conditional_on(kInheritDevice, kInheritDevice));
}

// An input that an arm does not read does not require a device.
TEST(Devices, TakeBranchesWithUnusedInputs) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto arm = [&](const char* name, bool exp) -> Graph& {
    Graph& g = ir.create_empty_graph(name);
    const Tensor x = g.input(row(), "x");
    g.input(row(), "unused");
    g.set_device(1);
    g.add_output(exp ? ops::exp(x) : ops::tanh(x));
    return g;
  };
  const Tensor x = stored(main, "x", 1);
  main.set_device(0);
  const Tensor mean = ops::mean(x);
  const Tensor condition = ops::greater(mean, ops::scalar_like(mean, 0));
  const Tensor y = ops::conditional(main, condition, arm("then", true), arm("else", false), {x, x},
                                    {x, x * 2.0})[0];
  main.host_store(y, "out");
  expect_bits(ir);
}

TEST(Devices, RefuseAConditionalOverTwo) {
  EXPECT_THAT(refusal(conditional_on(0, 1)),
              testing::HasSubstr("its branches must run on one device, got devices 1 and 0"));
}

TEST(Devices, AreThree) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& body = ir.create_empty_graph("turn");
  const Tensor w = body.input(row(), "w", Pass::kByReference);
  Tensor x = body.input(row(), "x");
  const Tensor first = x;
  for (const int device : {2, 0, 1, 2}) {
    body.set_device(device);
    x = ops::tanh(x + w) * first;
    ops::scaled_add_(w, x, 1.0, 0.125);
  }
  body.add_output(x);
  main.set_device(1);
  const Tensor last = ops::repeat(main, body, 5, {stored(main, "x", 1), stored(main, "w", 2)})[0];
  main.host_store(last, "out");
  expect_bits(ir, 3);
}

// A second entry has the same variable under another name and updates it on the other device.
TEST(Devices, ShareVariablesBetweenEntries) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = stored(main, "w", 1);
  main.set_device(1);
  ops::scaled_add_(w, ops::tanh(w), 1.0, 0.5);
  Graph& eval = ir.entry_graph("eval");
  eval.host_store(stored(eval, "w", 2), "own");
  const Tensor shared = ir.share_variable(w, eval);
  EXPECT_NE(shared.name(), w.name());
  eval.set_device(0);
  eval.host_store(ops::exp(shared), "seen");
  ops::scaled_add_(shared, shared, 1.0, -0.25);
  const RandomProgram program{.ir = ir, .runs = {"main", "eval", "main", "eval"}};
  expect_bits(program, ways(2));
}

// A message keeps its slot until its receiver has read it. The order of the program decides how
// many messages wait at the same time.
TEST(Devices, HaveTheSlotsThatTheOrderNeeds) {
  const auto slots = [](int values) {
    Ir ir;
    Graph& main = ir.main_graph();
    main.set_device(0);
    Tensors made;
    for (int i = 0; i < values; ++i)
      made.push_back(ops::tanh(stored(main, "x", static_cast<uint32_t>(i))));
    main.set_device(1);
    Tensor sum = made[0];
    for (int i = 1; i < values; ++i) sum = sum + made[static_cast<size_t>(i)];
    main.host_store(sum, "out");
    return counts_of(expect_bits(ir)).slots;
  };
  EXPECT_EQ(slots(2), 2);
  EXPECT_EQ(slots(5), 5);
}

// A weight in panels gives a computed value in panels. Messages carry its rows, also in another
// shape.
TEST(Devices, SendRowsOfPanels) {
  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec square = f32_spec({48, 48});
  const Tensor w = main.variable(square, Initializer::normal(0, 0.1f).keyed({1, 2}), "w");
  main.set_device(0);
  const Tensor x = main.host_load(ir.h2d_stream(f32_spec({8, 48}), "x"));
  const Tensor y = ops::matmul(x, w);
  const Tensor v = ops::matmul(x, y, {.lhs_transposed = true}) - w;
  const Tensor flat = ops::reshape(v, {24, 96});
  main.host_store(ops::softmax(ops::transpose(v)), "near");
  main.set_device(1);
  main.host_store(ops::tanh(v), "far");
  main.host_store(ops::exp(flat), "flat");
  const exe::Executable e = expect_bits(ir);
  EXPECT_NE(e.variables[exe::VariableId(0)].layout, "row");
}

}  // namespace
}  // namespace sluice::test
