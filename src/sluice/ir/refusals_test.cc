// One row for each error of this layer: the expected message, with the names that were found.

#include <cstdio>
#include <fstream>
#include <limits>

#include "sluice/base/test_refusals.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace {

TensorSpec bool_spec(Shape shape) { return {std::move(shape), boolean, {}}; }

// A program with one graph f(x, y) -> x, and tensors to pass to it.
class IrRefusals : public testing::Test {
 protected:
  Ir ir;
  Ir other_ir;
  Graph& main = ir.main_graph();
  Graph& other = other_ir.main_graph();
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor) { return x; }, f32_spec({2}), i32_spec({}));
  Tensor x = f.inputs()[0];
  Tensor y = f.inputs()[1];
  Tensor v = main.variable(HostTensor(f32_spec({2})), "v");
  Tensor n = main.variable(HostTensor(i32_spec({})), "n");
  Tensor foreign = other.variable(HostTensor(f32_spec({2})), "foreign");
};

TEST_F(IrRefusals, Handles) {
  Tensor gone;
  {
    Ir short_lived;
    gone = short_lived.main_graph().scalar(1, f32);
  }
  expect_refused({
      {"empty", [] { Tensor().name(); }, "tensor: the handle is empty"},
      {"after its Ir", [&] { gone.name(); }, "tensor: its Ir no longer exists"},
      {"axis", [&] { v.dim(1); }, "axis 1 is outside [-1, 1)"},
  });
}

TEST_F(IrRefusals, Programs) {
  expect_refused({
      {"replication", [] { Ir none(0); }, "Ir: replication must be 1 to 1024, got 0"},
      {"replicas", [] { Ir many(1025); }, "Ir: replication must be 1 to 1024, got 1025"},
      {"remote entries", [&] { ir.remote_buffer(f32_spec({2}), 0); },
       "remote buffer: entries must be a positive integer, got 0"},
      {"growing to nothing", [&] { ir.grow(ir.remote_buffer(f32_spec({2})), 0); },
       "remote buffer: entries must be a positive integer, got 0"},
      {"growing a foreign buffer", [&] { ir.grow(Ir().remote_buffer(f32_spec({2})), 2); },
       "remote buffer 1 belongs to another Ir"},
      {"a home without a buffer",
       [&] {
         ir.remote_buffer(VariableLocation{7, 0});
       },
       "there is no remote buffer 7"},
      {"group size", [] { ReplicaGrouping::make(4, 1, 0); },
       "replica grouping: size 0 is not in [1, 4]"},
      {"group larger than all", [] { Ir(4).replica_grouping(1, 8); }, "size 8 is not in [1, 4]"},
      {"stride", [] { ReplicaGrouping::make(4, -1, 2); }, "stride -1 is not in [1, 4]"},
      {"tiling", [] { ReplicaGrouping::make(4, 1, 3); },
       "replica grouping: stride 1 x size 3 does not tile 4 replicas"},
      {"no single stride",
       [] {
         (void)ReplicaGrouping::from_assignments({0, 1, 1, 0}).stride();
       },
       "ReplicaGrouping(assignment=[0, 1, 1, 0]) has no single stride"},
      {"no replicas", [] { ReplicaGrouping::from_assignments({}); },
       "the assignment must name at least one replica, got none"},
      {"unequal groups",
       [] {
         ReplicaGrouping::from_assignments({0, 0, 1});
       },
       "group 1 must have 2 replicas like group 0, got 1"},
      {"a group left out",
       [] {
         ReplicaGrouping::from_assignments({0, 2, 0, 2});
       },
       "the group of replica 1 must be in [0, 1], got 2"},
      {"groups out of order",
       [] {
         ReplicaGrouping::from_assignments({1, 0});
       },
       "the group of replica 0 must be in [0, 0], got 1"},
      {"another number of replicas",
       [] {
         Ir(4).replica_grouping_from_assignments({0, 0});
       },
       "2 replicas are assigned, the program has 4"},
      {"a variable without a name", [] { Ir().main_graph().variable(HostTensor::scalar(1), ""); },
       "variable: the name must not be empty"},
      {"no replication", [] { Ir().set_replication(0); },
       "Ir: replication must be 1 to 1024, got 0"},
      {"replication that is relied on",
       [] {
         Ir late(2);
         (void)late.replica_grouping();
         late.set_replication(4);
       },
       "Ir: replication 2 cannot become 4: a replica grouping relies on it"},
      {"no variable", [&] { ir.share_variable(main.scalar(1, f32, "c"), ir.entry_graph("eval")); },
       "share_variable: 'c' is not a variable"},
      {"variable of another Ir", [&] { ir.share_variable(foreign, ir.entry_graph("eval")); },
       "share_variable: 'foreign' and graph eval must both be of this Ir"},
      {"variable for another Ir", [&] { ir.share_variable(v, other); },
       "share_variable: 'v' and graph main must both be of this Ir"},
  });
}

TEST_F(IrRefusals, Initializers) {
  const auto fill = [](const Initializer& i, TensorSpec spec) { return [=] { i.evaluate(spec); }; };
  const Initializer array = Initializer::array(HostTensor(f32_spec({3})));
  const std::string shorter = testing::TempDir() + "initializer_refusals.bin";
  std::ofstream(shorter) << "four";
  expect_refused({
      {"uniform", [] { Initializer::uniform(1, 0); }, "uniform: low 1 is above high 0"},
      {"uniform of no number",
       [] { Initializer::uniform(std::numeric_limits<double>::quiet_NaN(), 0); }, "low nan"},
      {"orthogonal without rows", [] { Initializer::orthogonal(0, 4, 1); },
       "orthogonal: a matrix must have 1 to 16777216 elements, got 0 x 4; use another initializer"},
      {"large orthogonal matrix", [] { Initializer::orthogonal(4097, 4096, 1); },
       "orthogonal: a matrix must have 1 to 16777216 elements, got 4097 x 4096"},
      {"part of an orthogonal matrix", fill(Initializer::orthogonal(2, 3, 1), f32_spec({8})),
       "initializer: the elements of a variable must be a multiple of those of its orthogonal "
       "matrices, 2 x 3, got (8,) float32"},
      {"offset", [] { Initializer::file("w.bin", -1); }, "initializer: file offset -1 is negative"},
      {"shape", fill(array, f32_spec({4})),
       "initializer: the array must be (4,) float32 like the variable, got (3,) float32"},
      {"dtype", fill(array, i32_spec({3})), "the array must be (3,) int32 like the variable"},
      {"constant out of range", fill(Initializer::constant(-1), {{2}, u32, {}}),
       "initializer: a constant must be a whole number in [0, 4294967295] to be uint32, got -1"},
      {"file", fill(Initializer::file("no/such.bin", 0), f32_spec({4})), "cannot open no/such.bin",
       ErrorKind::kIo},
      {"file that is too short", fill(Initializer::file(shorter, 4), f32_spec({4})),
       "cannot read " + shorter + ": it ends at byte 4, 16 more were expected", ErrorKind::kIo},
      {"a device", fill(Initializer::file("/dev/null", 4), f32_spec({4})),
       "cannot read /dev/null: must be a regular file, got a device", ErrorKind::kBadFile},
  });
  std::remove(shorter.c_str());
}

TEST_F(IrRefusals, Tensors) {
  const int64_t huge = int64_t{1} << 40;
  expect_refused({
      {"negative dimension",
       [&] {
         f.input(f32_spec({2, -1}), "a");
       },
       "tensor 'a': shape (2, -1) has a negative dimension"},
      {"too large",
       [&] {
         f.input(f32_spec({huge, huge}), "a");
       },
       "exceeds 63 bits"},
      {"input of an entry", [&] { main.input(f32_spec({2})); },
       "graph main: an entry graph has no inputs; use a stream or a variable"},
      {"variable elsewhere", [&] { f.variable(HostTensor(f32_spec({2})), "w"); },
       "variable 'w': variables live in entry graphs, not in f_subgraph(0)"},
      {"device", [&] { main.set_device(-2); }, "graph main: device must be at least -1, got -2"},
      {"no op", [&] { (void)main.op(OpId(7)); }, "graph main: there is no op 7"},
      {"output of another graph", [&] { f.add_output(v); },
       "output: tensor 'v' belongs to graph main, not to f_subgraph(0)"},
      {"empty output", [&] { f.set_outputs({Tensor()}); }, "output: an operand is an empty handle"},
      {"mirror of another graph",
       [&] {
         f.keep_in_step({x, {v}, [] {}, [] {}});
       },
       "keep_in_step: tensor 'v' belongs to graph main"},
  });
}

TEST_F(IrRefusals, Operands) {
  const auto emit = [&](const OpDef& def, const std::vector<TensorArg>& inputs) {
    return [&main = main, &def, inputs] { main.emit(def, inputs, {}); };
  };
  expect_refused({
      {"of another graph", emit(builtin::host_store(), {x}),
       "host_store: tensor 'x' belongs to graph f_subgraph(0), not to main"},
      {"of another Ir", emit(builtin::host_store(), {foreign}),
       "tensor 'foreign' belongs to graph main of another Ir, not to main"},
      {"empty", emit(builtin::host_store(), {Tensor()}),
       "host_store: an operand is an empty handle\n  while adding host_store at refusals_test.cc:"},
      {"too few", emit(builtin::host_store(), {}), "host_store: needs 1 inputs, got 0"},
      {"too many", emit(builtin::host_store(), {v, v}), "host_store: needs 1 inputs, got 2"},
      {"at least", emit(builtin::remote_load(), {}), "remote_load: needs at least 1 inputs, got 0"},
      {"a constant is written", emit(builtin::host_load(), {main.scalar(1, f32, "c")}),
       "host_load: constant 'c' cannot be written"},
  });
  Graph& update = ir.create_empty_graph("update");
  update.input(f32_spec({2}), "a", Pass::kByReference);
  update.input(f32_spec({2}), "b", Pass::kByReference);
  Tensor view = main.variable(HostTensor(f32_spec({2})), "view");
  main.keep_in_step({view, {v}, [] {}, [] {}});
  expect_refused({
      {"written twice",
       [&] {
         ops::call(main, update, {v, v});
       },
       "two operands write 'v'"},
      {"written twice by a view",
       [&] {
         ops::call(main, update, {v, view});
       },
       "two operands write 'v' and 'view', which show the same elements"},
  });
}

TEST_F(IrRefusals, Streams) {
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  const D2hStream out = ir.d2h_stream(f32_spec({2}), "out");
  expect_refused({
      {"load of another Ir", [&] { other.host_load(in); },
       "host_load: stream 'in' belongs to another Ir"},
      {"store of another Ir", [&] { other.host_store(out, foreign); },
       "host_store: stream 'out' belongs to another Ir"},
      {"store of another spec", [&] { main.host_store(out, n); },
       "host_store: tensor 'n' is () int32, stream 'out' takes (2,) float32"},
      {"store of another graph's tensor", [&] { main.host_store(out, x); }, "belongs to graph f"},
  });
}

TEST_F(IrRefusals, DtypesOfTheHost) {
  const HostTensor wide(TensorSpec{{2}, i64, {}});
  const std::string must = " must have a dtype that devices have, got (2,) ";
  expect_refused({
      {"input stream",
       [&] {
         ir.h2d_stream({{2}, i64, {}}, "in");
       },
       "stream 'in'" + must + "int64; cast the array with HostTensor::cast"},
      {"output stream",
       [&] {
         ir.d2h_stream({{2}, f64, {}}, "out");
       },
       "stream 'out'" + must + "float64"},
      {"variable", [&] { main.variable(wide, "w"); }, "variable 'w'" + must + "int64"},
      {"constant", [&] { main.constant(wide, "c"); }, "constant 'c'" + must + "int64"},
      {"remote buffer",
       [&] {
         ir.remote_buffer({{2}, f64, {}});
       },
       "remote buffer" + must + "float64"},
  });
}

TEST_F(IrRefusals, RemoteBuffers) {
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 3);
  const Tensor wide = main.variable(HostTensor(i32_spec({2})), "wide");
  const Tensor f3 = main.variable(HostTensor(f32_spec({3})), "f3");
  expect_refused({
      {"load beyond", [&] { main.remote_load(buffer, 3); },
       "remote buffer 1: entry 3 is outside its 3 entries"},
      {"load below", [&] { main.remote_load(buffer, -1); }, "entry -1 is outside its 3 entries"},
      {"store beyond", [&] { main.remote_store(buffer, 3, v); }, "entry 3 is outside"},
      {"load by an array", [&] { main.remote_load(buffer, wide); },
       "remote buffer 1: an entry must be a scalar int32 or uint32, got (2,) int32"},
      {"load by a float", [&] { main.remote_load(buffer, main.scalar(0, f32)); }, "got () float32"},
      {"load of another Ir", [&] { other.remote_load(buffer, 0); },
       "remote buffer 1 belongs to another Ir"},
      {"store of another Ir", [&] { other.remote_store(buffer, 0, foreign); },
       "remote buffer 1 belongs to another Ir"},
      {"store by a float", [&] { main.remote_store(buffer, main.scalar(0, f32), v); },
       "remote buffer 1: an entry must be a scalar int32 or uint32, got () float32"},
      {"store of another spec", [&] { main.remote_store(buffer, 0, f3); },
       "Tensor 'f3' ((3,) float32) does not match buffer 1 ((2,) float32)"},
      {"load over another spec", [&] { main.remote_load_(buffer, 0, f3); },
       "does not match buffer 1"},
      {"the same by a tensor", [&] { main.remote_store(buffer, n, f3); },
       "Tensor 'f3' ((3,) float32) does not match buffer 1"},
  });
}

TEST_F(IrRefusals, Calls) {
  Graph& foreign_graph = other_ir.create_empty_graph("h");
  expect_refused({
      {"of another Ir", [&] { ops::call(main, foreign_graph, {}); },
       "call: graph h_subgraph(0) belongs to another Ir"},
      {"of itself",
       [&] {
         ops::call(f, f, {x, y});
       },
       "call: graph f_subgraph(0) would call itself"},
      {"of an entry", [&] { ops::call(f, main, {}); },
       "call: main is an entry graph and cannot be called"},
      {"too many",
       [&] {
         ops::call(main, f, {v, n, n});
       },
       "call: 3 inputs given, graph f_subgraph(0) has 2"},
      {"too few", [&] { ops::call(main, f, {v}); },
       "Not enough inputs have been provided: graph f_subgraph(0) called in main has 2 inputs\n"
       "  x <- v\n  x1 <- (missing)"},
      {"named of another graph",
       [&] {
         ops::call(main, f, {v}, {{n, n}});
       },
       "call: 'n' is not a tensor of graph f_subgraph(0)"},
      {"named by no input",
       [&] {
         ops::call(main, f, {v}, {{f.scalar(1, f32, "c"), n}});
       },
       "call: 'c' is not an input of graph f_subgraph(0)"},
      {"twice",
       [&] {
         ops::call(main, f, {v, n}, {{y, n}});
       },
       "call: input 'x1' of graph f_subgraph(0) is given twice"},
      {"tensor of another graph",
       [&] {
         ops::call(main, f, {v, y});
       },
       "call: tensor 'x1' belongs to graph f_subgraph(0), not to main"},
      {"spec",
       [&] {
         ops::call(main, f, {n, n});
       },
       "call: input 'x' of graph f_subgraph(0) must be (2,) float32, got tensor 'n' with () int32"},
  });
}

TEST_F(IrRefusals, CallSites) {
  const Tensor unused = f.scalar(1, f32, "unused");
  const CallSiteInfo site = ops::call_with_info(main, f, {v, n});
  const std::string name = "call site Call.100: ";
  expect_refused({
      {"of another graph", [&] { site.graph_to_parent(v); },
       name + "tensor 'v' does not belong to the called graph f_subgraph(0)"},
      {"inside", [&] { site.graph_to_parent(unused); },
       name + "tensor 'unused' is neither an input nor an output of f_subgraph(0)"},
      {"no operand", [&] { site.parent_to_graph(site.output(0)); }, "is not one of its inputs"},
      {"input", [&] { site.input(2); }, name + "input must be in [0, 2), got 2"},
      {"output", [&] { site.output(-1); }, name + "output must be in [0, 1), got -1"},
  });
}

TEST_F(IrRefusals, Loops) {
  Graph& grows = ir.create_graph(
      "grows",
      [](Graph& g, Tensor a) {
        return Tensors{a, g.scalar(0, f32)};
      },
      f32_spec({2}));
  Graph& loop_body = ir.create_graph(
      "turns", [](Graph&, Tensor, Tensor b) { return b; }, f32_spec({2}), i32_spec({}));
  const auto repeat = [&](Graph& body, int64_t trips, Tensors inputs, Tensor iteration) {
    return [=, &main = main, &body] {
      ops::repeat(main, body, trips, inputs, {}, {.iteration = iteration});
    };
  };
  expect_refused({
      {"trips", repeat(f, -1, {v, n}, {}), "repeat: trips must be in [0, 2147483647], got -1"},
      {"more trips than an iteration can count", repeat(f, int64_t{1} << 31, {v, n}, {}),
       "repeat: trips must be in [0, 2147483647], got 2147483648"},
      {"more outputs", repeat(grows, 2, {v}, {}),
       "repeat: graph grows_subgraph(1) has 2 outputs but only 1 inputs to carry them"},
      {"another spec", repeat(loop_body, 2, {v, n}, {}),
       "repeat: output 0 of graph turns_subgraph(2) must be (2,) float32 like the input that it "
       "feeds, got () int32"},
      {"iteration of another graph", repeat(f, 2, {v}, n),
       "the iteration input must be a scalar int32 input of f_subgraph(0)"},
      {"iteration that is no integer", repeat(f, 2, {v}, x),
       "the iteration input must be a scalar int32 input of f_subgraph(0)"},
      {"iteration that is no input", repeat(f, 2, {v}, f.scalar(0, i32)),
       "the iteration input must be an input of f_subgraph(0) that is not carried"},
      {"too many", repeat(f, 2, {v, n, n}, {}),
       "repeat: 3 inputs given, graph f_subgraph(0) has 2"},
      {"too few", repeat(f, 2, {v}, {}), "Not enough inputs have been provided"},
      {"iteration given too", repeat(f, 2, {v, n}, y),
       "input 'x1' of graph f_subgraph(0) is given"},
      {"of another Ir", repeat(other_ir.create_empty_graph("h"), 2, {}, {}),
       "belongs to another Ir"},
  });
  Graph& counts = ir.create_graph(
      "counts", [](Graph&, Tensor a) { return a; }, i32_spec({}));
  expect_refused({{"carried iteration", repeat(counts, 2, {n}, counts.inputs()[0]),
                   "must be an input of counts_subgraph"}});

  Graph& body = ir.create_graph(
      "body", [](Graph&, Tensor a) { return a; }, f32_spec({2}));
  ops::repeat(main, body, 2, {v});
  Graph* wrapper = nullptr;
  for (const GraphId id : ir.graph_ids()) {
    if (ir.graph(id).name().starts_with("body_subgraph(") &&
        ir.graph(id).name().find("__loop_wrapper") != std::string::npos) {
      wrapper = &ir.graph(id);
    }
  }
  ASSERT_NE(wrapper, nullptr);
  expect_refused({{"further outputs of a loop's body",
                   [&] { GraphEditor(*wrapper).append_outputs(wrapper->outputs()); },
                   "in graph main: it cannot get further outputs"}});
}

TEST_F(IrRefusals, Conditionals) {
  const Tensor yes = main.variable(HostTensor(bool_spec({})), "yes");
  const Tensor many = main.variable(HostTensor(bool_spec({2})), "many");
  Graph& none = ir.create_empty_graph("none");
  Graph& ints = ir.create_graph(
      "ints", [](Graph&, Tensor a) { return a; }, i32_spec({}));
  Graph& by_reference = ir.create_graph(
      "by_reference", [](Graph&, Tensor a) { return a; },
      NamedInput{"a", f32_spec({2}), Pass::kByReference});
  expect_refused({
      {"condition's dtype",
       [&] {
         ops::conditional(main, n, f, f, {v, n}, {v, n});
       },
       "conditional: the condition must be a scalar bool, got () int32"},
      {"condition's shape",
       [&] {
         ops::conditional(main, many, f, f, {v, n}, {v, n});
       },
       "got (2,) bool"},
      {"then inputs",
       [&] {
         ops::conditional(main, yes, f, f, {n, n}, {v, n});
       },
       "conditional, then branch: input 'x' of graph f_subgraph(0) must be (2,) float32"},
      {"else inputs",
       [&] {
         ops::conditional(main, yes, f, f, {v, n}, {v, n, n});
       },
       "conditional, else branch: 3 inputs given"},
      {"by reference",
       [&] {
         ops::conditional(main, yes, by_reference, f, {v}, {v, n});
       },
       "conditional: a branch with by-reference inputs is not supported"},
      {"number of outputs",
       [&] {
         ops::conditional(main, yes, f, none, {v, n}, {});
       },
       "conditional: the then branch has 1 outputs, the else branch 0"},
      {"spec of an output",
       [&] {
         ops::conditional(main, yes, f, ints, {v, n}, {n});
       },
       "conditional: output 0 is (2,) float32 in the then branch, () int32 in the else branch"},
      {"condition of another graph",
       [&] {
         ops::conditional(main, other.variable(HostTensor(bool_spec({}))), f, f, {v, n}, {v, n});
       },
       "belongs to graph main of another Ir, not to main"},
  });
}

TEST_F(IrRefusals, GraphsChangedAfterTheirCall) {
  const auto refused = [](auto&& change, const std::string& part) {
    Ir ir;
    Graph& main = ir.main_graph();
    Graph& g = ir.create_graph(
        "g", [](Graph&, Tensor a) { return a; }, f32_spec({2}));
    const Tensor v = main.variable(HostTensor(f32_spec({2})), "v");
    const Tensor yes = main.variable(HostTensor(bool_spec({})), "yes");
    ops::call(main, g, {v});
    ops::repeat(main, g, 2, {v});
    ops::conditional(main, yes, g, g, {v}, {v});
    check_calls(ir);
    change(g);
    expect_refused({{part, [&] { check_calls(ir); }, part}});
  };
  refused([](Graph& g) { g.input(f32_spec({2})); },
          "graph g_subgraph(0) was changed after Call.100 (refusals_test.cc:");
  refused([](Graph& g) { g.input(f32_spec({2})); }, "it has 2 inputs, the call passes 1");
  refused([](Graph& g) { g.set_outputs({}); }, "it has 0 outputs, the call returns 1");
  refused([](Graph& g) { g.set_outputs({g.constant(HostTensor(f32_spec({9})), "c")}); },
          "its output 'c' is (9,) float32, the call has (2,) float32");
}

TEST_F(IrRefusals, CallsWithoutEnd) {
  Graph& g = ir.create_graph(
      "g",
      [&](Graph& graph, Tensor a, Tensor b) {
        return ops::call(graph, f, {a, b});
      },
      f32_spec({2}), i32_spec({}));
  ops::call(f, g, {x, y});
  expect_refused({
      {"two graphs that call each other", [&] { check_calls(ir); },
       "graph f_subgraph(0) calls itself"},
      {"the same by verify", [&] { verify(ir); }, "calls itself"},
  });

  Ir deep;
  Graph* inner = &deep.create_graph(
      "leaf", [](Graph&, Tensor a) { return a; }, f32_spec({2}));
  const auto wrap = [&] {
    inner = &deep.create_graph(
        "g", [&](Graph& graph, Tensor a) { return ops::call(graph, *inner, {a}); }, f32_spec({2}));
  };
  for (int i = 0; i < 400; ++i) wrap();
  check_calls(deep);
  wrap();
  expect_refused({{"a tower", [&] { check_calls(deep); }, "are nested deeper than 400"}});
}

}  // namespace
}  // namespace sluice
