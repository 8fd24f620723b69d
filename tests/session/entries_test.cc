// The compiler turns entries of remote buffers into index expressions if the program determines
// them. They are then not scalars on the device.

#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/visit_step.h"
#include "sluice/interp/interpreter.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr TensorSpec scalar() { return {{}, i32, {}}; }
TensorSpec row_spec() { return f32_spec({16}); }

std::vector<const exe::Issue*> remote_transfers(const exe::Executable& e) {
  std::vector<const exe::Issue*> all;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* issue = std::get_if<exe::Issue>(&step.body);
      if (issue == nullptr) continue;
      if (issue->kind == exe::TransferKind::kRemoteLoad ||
          issue->kind == exe::TransferKind::kRemoteStore)
        all.push_back(issue);
    }
  }
  return all;
}

int64_t computed_entries(const exe::Executable& e) {
  const auto all = remote_transfers(e);
  return std::count_if(all.begin(), all.end(),
                       [](const exe::Issue* i) { return i->entry_from.has_value(); });
}

// Counts kernels that write or read a scalar integer.
int64_t integer_kernels(const exe::Executable& e) {
  int64_t count = 0;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      bool scalar = false;
      exe::for_each_operand(step, [&](const exe::Operand& o) {
        scalar |= o.spec.dtype == i32 || o.spec.dtype == u32;
      });
      exe::for_each_call(step, [&](const exe::Call& c) {
        for (const exe::Operand& o : c.args) scalar |= o.spec.dtype == i32 || o.spec.dtype == u32;
      });
      count += scalar;
    }
  }
  return count;
}

// Checks that sessions give the interpreter's bits. Returns the plan with all passes.
exe::Executable expect_bits(const Ir& ir, const D2hStream& out) {
  Interpreter interpreter(ir);
  const HostTensor want = interpreter.run()[out];
  exe::Executable plan;
  for (const std::vector<std::string>& disable :
       {std::vector<std::string>{}, {"inline"}, {"entries"}, {"inline", "dead-code", "entries"}}) {
    for (const int threads : {1, 2}) {
      Session session(ir, {.device = cpu_device({.threads = threads}), .disable = disable});
      EXPECT_TRUE(session.run({})[out].same_bits(want)) << "disabled: " << disable.size();
      if (disable.empty()) plan = session.executable();
    }
  }
  return plan;
}

// A loop that loads entry n of a buffer, changes it and stores it again. n counts from `first` in
// steps of `by`.
struct Counting {
  explicit Counting(int64_t entries, int64_t trips, int64_t first, int64_t by) {
    Graph& main = ir.main_graph();
    buffer = ir.remote_buffer(row_spec(), entries);
    Graph& body = ir.create_graph(
        "turn",
        [&](Graph& g, Tensor row, Tensor x) {
          g.remote_store(buffer, row, g.remote_load(buffer, row) + x);
          return Tensors{row + by, x * 0.5 + g.remote_load(buffer, row)};
        },
        scalar(), row_spec());
    const Tensor x = main.variable(row_spec(), Initializer::constant(1), "x");
    const Tensors last =
        ops::repeat(main, body, trips, {main.scalar(static_cast<double>(first), i32, "row"), x});
    out = main.host_store(last[1] + main.remote_load(buffer, 0), "y");
    end = last[0];
  }
  Ir ir;
  RemoteBuffer buffer;
  D2hStream out;
  Tensor end;
};

TEST(Entries, OfACounterAreIndexExpressions) {
  const Counting up(6, 6, 0, 1);
  const exe::Executable plan = expect_bits(up.ir, up.out);
  EXPECT_EQ(computed_entries(plan), 0);
  EXPECT_EQ(integer_kernels(plan), 0) << "the counter is on the device";
  for (const exe::ConstantPlan& c : plan.constants) EXPECT_NE(c.spec.dtype, i32) << c.name;
  // The load after the store of the same row records the value that it must find.
  const auto all = remote_transfers(plan);
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const exe::Issue* i) {
                            return i->found != exe::kNoValue && !i->entry.is_constant();
                          }),
            1);
  const Counting down(9, 3, 8, -3);
  EXPECT_EQ(computed_entries(expect_bits(down.ir, down.out)), 0);
}

// A ring of entries: the carried row is a remainder. It wraps around several times, and its last
// value is used.
TEST(Entries, OfACarriedRemainderAreIndexExpressions) {
  const auto ring = [](Ir& ir, int64_t entries, int64_t trips, int64_t first, int64_t by,
                       int64_t start_modulus) {
    Graph& main = ir.main_graph();
    const RemoteBuffer buffer = ir.remote_buffer(row_spec(), entries);
    const auto rows = static_cast<double>(entries);
    Graph& next = ir.create_graph(
        "next",
        [&](Graph&, Tensor row) { return ops::increment_mod(row, static_cast<double>(by), rows); },
        scalar());
    Graph& body = ir.create_graph(
        "turn",
        [&](Graph& g, Tensor row, Tensor x) {
          g.remote_store(buffer, row, g.remote_load(buffer, row) + x);
          return Tensors{ops::call(g, next, {row})[0], x * 0.5 + g.remote_load(buffer, row)};
        },
        scalar(), row_spec());
    const Tensor x = main.variable(row_spec(), Initializer::constant(1), "x");
    Tensor start = main.scalar(static_cast<double>(first), i32, "row");
    if (start_modulus > 0) start = ops::increment_mod(start, 0, static_cast<double>(start_modulus));
    const Tensors last = ops::repeat(main, body, trips, {start, x});
    return main.host_store(last[1] + main.remote_load(buffer, last[0]), "y");
  };
  for (const auto& [entries, trips, first, by] : {std::array<int64_t, 4>{3, 7, 0, 1},
                                                  {3, 7, 2, 1},
                                                  {5, 4, 1, -2},
                                                  {4, 9, 3, 7},
                                                  {6, 3, 1, 1}}) {
    Ir ir;
    const exe::Executable plan = expect_bits(ir, ring(ir, entries, trips, first, by, 0));
    EXPECT_EQ(computed_entries(plan), 0) << entries << " " << trips << " " << by;
    EXPECT_EQ(integer_kernels(plan), 0) << "the counter is on the device";
  }
  Ir folded;
  EXPECT_EQ(computed_entries(expect_bits(folded, ring(folded, 3, 7, 11, 1, 3))), 0);
  // The first entry is outside the range of the remainders.
  Ir outside;
  const RemoteBuffer large = outside.remote_buffer(row_spec(), 8);
  Graph& main = outside.main_graph();
  Graph& loop_body = outside.create_graph(
      "turn",
      [&](Graph& g, Tensor row, Tensor x) {
        g.remote_store(large, row, x);
        return Tensors{ops::increment_mod(row, 1, 3), x + 1};
      },
      scalar(), row_spec());
  ops::repeat(
      main, loop_body, 5,
      {main.scalar(7, i32, "row"), main.variable(row_spec(), Initializer::constant(1), "x")});
  Tensor sum = main.remote_load(large, 0);
  for (int64_t k = 1; k < 8; ++k) sum = sum * 3 + main.remote_load(large, k);
  EXPECT_EQ(computed_entries(expect_bits(outside, main.host_store(sum, "y"))), 1);
  expect_refused({{"a ring larger than its buffer",
                   [&] {
                     Ir ir;
                     Graph& main = ir.main_graph();
                     const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 4);
                     Graph& store = ir.create_graph(
                         "store",
                         [&](Graph& g, Tensor row, Tensor x) {
                           g.remote_store(buffer, row, x);
                           return Tensors{ops::increment_mod(row, 2, 5), x + 1};
                         },
                         scalar(), row_spec());
                     const Tensor v = main.variable(row_spec(), Initializer::constant(1), "x");
                     ops::repeat(main, store, 3, {main.scalar(0, i32, "row"), v});
                     Session session(ir, {.device = cpu_device({.threads = 1})});
                   },
                   "remote buffer remote1: entry must be 0 to 3, got 0 to 4 (made at"}});
}

TEST(Entries, ACounterThatKernelsReadIsMadeForThem) {
  Counting up(6, 4, 1, 1);
  Graph& main = up.ir.main_graph();
  const D2hStream out =
      main.host_store(ops::cast(up.end, f32) + main.remote_load(up.buffer, up.end), "end");
  const exe::Executable plan = expect_bits(up.ir, out);
  EXPECT_EQ(computed_entries(plan), 0);
  for (const exe::Function& f : plan.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      if (loop != nullptr) {
        EXPECT_EQ(loop->carried.size(), 1u);
      }
    }
  }
}

// Rows of identical layers. Layer k at micro-batch i uses entry k·steps + i.
TEST(Entries, OfLayersShareOneFunctionWhateverTheirRows) {
  constexpr int64_t kSteps = 3;
  constexpr int64_t kLayers = 4;
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(row_spec(), kSteps * (kLayers + 1));
  Graph& loop_body = ir.create_empty_graph("turn");
  const Tensor row = loop_body.input(scalar(), "row");
  const Tensor i = loop_body.input(scalar(), "i");
  const Tensor at = row * kSteps + i;
  const Tensor x = ops::tanh(loop_body.remote_load(buffer, at) + 0.5);
  loop_body.remote_store(buffer, at + kSteps, x);
  Graph& layer = ir.create_empty_graph("layer");
  const Tensor own = layer.input(scalar(), "row");
  ops::repeat(layer, loop_body, kSteps, {own}, {}, {.iteration = i});
  layer.add_output(own + 1);
  Tensor next = main.scalar(0, i32, "row");
  for (int64_t k = 0; k < kLayers - 1; ++k) next = ops::call(main, layer, {next})[0];
  ops::call(main, layer, {main.scalar(static_cast<double>(kLayers - 1), i32, "last")});
  const D2hStream out = main.host_store(
      main.remote_load(buffer, kSteps * kLayers) + main.remote_load(buffer, kSteps * kLayers + 2),
      "y");
  const exe::Executable plan = expect_bits(ir, out);
  EXPECT_EQ(computed_entries(plan), 0);
  EXPECT_EQ(integer_kernels(plan), 0);
  const auto named = std::count_if(
      plan.functions.begin(), plan.functions.end(),
      [](const exe::Function& f) { return f.name.starts_with("layer") && f.index_params == 1; });
  EXPECT_EQ(named, 1);
}

// Index expressions must treat signs and remainders as the ops do.
TEST(Entries, FollowTheArithmeticOfTheOps) {
  using Formula = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Formula>> formulas{
      {"floor of a negative quotient", [](const Tensor& n) { return (n - 7) / 2 + 4; }},
      {"a negative divisor", [](const Tensor& n) { return n / -3 + 3; }},
      {"remainder of a negative number",
       [](const Tensor& n) { return ops::increment_mod(n, -9, 5); }},
      {"remainder that never turns", [](const Tensor& n) { return ops::increment_mod(n, 1, 100); }},
      {"product and difference", [](const Tensor& n) { return n * 3 - n * 2; }},
      {"unsigned", [](const Tensor& n) { return ops::cast(ops::cast(n, u32) * 2, i32) / 2; }},
      {"views", [](const Tensor& n) { return ops::reshape(ops::reshape(n + 1, {1}), {}) - 1; }},
      {"written in place",
       [](const Tensor& n) {
         const Tensor t = n + 0;
         ops::add_(t, n);
         return t / 2;
       }},
  };
  for (const auto& [name, formula] : formulas) {
    SCOPED_TRACE(name);
    Ir ir;
    Graph& main = ir.main_graph();
    const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 12);
    Graph& loop_body = ir.create_empty_graph("turn");
    const Tensor x = loop_body.input(row_spec(), "x");
    const Tensor i = loop_body.input(scalar(), "i");
    loop_body.remote_store(buffer, formula(i), x);
    loop_body.add_output(x + 1);
    ops::repeat(main, loop_body, 8, {main.variable(row_spec(), Initializer::constant(1), "x")}, {},
                {.iteration = i});
    Tensor sum = main.remote_load(buffer, 0);
    for (int64_t k = 1; k < 12; ++k) sum = sum * 3 + main.remote_load(buffer, k);
    const D2hStream out = main.host_store(sum, "y");
    EXPECT_EQ(computed_entries(expect_bits(ir, out)), 0);
  }
}

TEST(Entries, ThatWrapAroundAreLeftToTheDevice) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 4);
  Graph& loop_body = ir.create_empty_graph("turn");
  const Tensor n = loop_body.input({{}, u32, {}}, "n");
  const Tensor x = loop_body.input(row_spec(), "x");
  loop_body.remote_store(buffer, n + 3, x);
  loop_body.set_outputs({n + 1, x + 1});
  const Tensor start = main.constant(HostTensor::of<uint32_t>({}, u32, {UINT32_MAX - 2}));
  ops::repeat(main, loop_body, 3,
              {start, main.variable(row_spec(), Initializer::constant(1), "x")});
  const D2hStream out =
      main.host_store(main.remote_load(buffer, 0) - main.remote_load(buffer, 2), "y");
  EXPECT_EQ(computed_entries(expect_bits(ir, out)), 1);
}

TEST(Entries, ThatTheDataDecideAreCheckedWhenTheyAreUsed) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 4);
  const H2dStream which = ir.h2d_stream(scalar(), "which");
  const D2hStream out = main.host_store(main.remote_load(buffer, main.host_load(which) + 1), "y");
  Session session(ir, {.device = cpu_device({.threads = 1})});
  EXPECT_EQ(computed_entries(session.executable()), 1);
  const auto run = [&](int32_t n) {
    return session.run({{which, HostTensor::of<int32_t>({}, i32, {n})}});
  };
  EXPECT_EQ(run(2)[out].spec(), row_spec());
  expect_refused({{"beyond", [&] { run(3); }, "remote buffer remote1: entry 4 is outside its 4"}});
}

// A conditional may guard an entry that is not always in the buffer.
TEST(Entries, InAnArmAreCheckedWhenTheArmRuns) {
  Ir ir;
  Graph& main = ir.main_graph();
  const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 4);
  Graph& load = ir.create_graph(
      "load", [&](Graph& g, Tensor row, Tensor x) { return x + g.remote_load(buffer, row + 1); },
      scalar(), row_spec());
  Graph& keep = ir.create_graph(
      "keep", [](Graph&, Tensor x) { return ops::tanh(x); }, row_spec());
  Graph& loop_body = ir.create_empty_graph("turn");
  const Tensor x = loop_body.input(row_spec(), "x");
  const Tensor i = loop_body.input(scalar(), "i");
  loop_body.remote_store(buffer, i, x);
  loop_body.add_output(ops::conditional(
      loop_body, ops::greater(loop_body.scalar(3, i32, "last"), i), load, keep, {i, x}, {x})[0]);
  const D2hStream out = main.host_store(
      ops::repeat(main, loop_body, 4, {main.variable(row_spec(), Initializer::constant(1), "x")},
                  {}, {.iteration = i})[0],
      "y");
  EXPECT_EQ(computed_entries(expect_bits(ir, out)), 1);
}

TEST(Entries, OutsideTheirBufferAreRefusedBeforeTheFirstRun) {
  const auto compiled = [](const Counting& c) {
    Session session(c.ir, {.device = cpu_device({.threads = 1})});
  };
  expect_refused({{"a loop too far", [&] { compiled(Counting(5, 7, 1, 1)); },
                   "remote buffer remote1: entry must be 0 to 4, got 1 to 7 (made at"},
                  {"below the first", [&] { compiled(Counting(5, 2, 0, -1)); },
                   "remote buffer remote1: entry must be 0 to 4, got -1 to 0 (made at"},
                  {"one of two calls",
                   [&] {
                     Ir ir;
                     Graph& main = ir.main_graph();
                     const RemoteBuffer buffer = ir.remote_buffer(row_spec(), 3);
                     Graph& store = ir.create_empty_graph("store");
                     const Tensor row = store.input(scalar(), "row");
                     const Tensor x = store.input(row_spec(), "x");
                     for (int k = 0; k < 9; ++k) store.remote_store(buffer, row / 2, x);
                     const Tensor v = main.variable(row_spec(), Initializer::constant(1), "x");
                     ops::call(main, store, {main.scalar(0, i32, "a"), v});
                     ops::call(main, store, {main.scalar(6, i32, "b"), v});
                     Session session(ir, {.device = cpu_device({.threads = 1})});
                   },
                   "remote buffer remote1: entry must be 0 to 2, got 0 to 3 (made at"}});
}

}  // namespace
}  // namespace sluice::test
