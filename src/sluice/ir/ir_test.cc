#include <gtest/gtest.h>

#include <thread>

#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace {

template <typename Table, typename Index>
concept IndexedBy = requires(const Table& table, Index index) {
  table[index];
};
template <typename Index>
concept NamesATensor = requires(const Graph& graph, Index index) {
  graph.info(index);
};
template <typename Index>
concept NamesAStorage = requires(const Graph& graph, Index index) {
  graph.storage(index);
};
template <typename Index>
concept NamesAnOp = requires(const Graph& graph, Index index) {
  graph.op(index);
};
template <typename Index>
concept NamesAGraph = requires(const Ir& ir, Index index) {
  ir.graph(index);
};
template <typename Index>
concept NamesAVersion = IndexedBy<decltype(Storage::writers), Index>;
template <typename Index>
concept IsAnOpsPosition = IndexedBy<StableList<Op, OpIndex>, Index>;

TEST(Ir, OnlyTheRightIdCompilesAsAnIndex) {
  const auto count = []<typename Index>(Index) {
    return NamesATensor<Index> + NamesAStorage<Index> + NamesAnOp<Index> + NamesAGraph<Index> +
           NamesAVersion<Index> + IsAnOpsPosition<Index>;
  };
  EXPECT_TRUE(NamesATensor<TensorId>);
  EXPECT_TRUE(NamesAStorage<StorageId>);
  EXPECT_TRUE(NamesAnOp<OpId>);
  EXPECT_TRUE(NamesAGraph<GraphId>);
  EXPECT_TRUE(NamesAVersion<Version>);
  EXPECT_TRUE(IsAnOpsPosition<OpIndex>);
  EXPECT_EQ(count(TensorId()), 1);
  EXPECT_EQ(count(StorageId()), 1);
  EXPECT_EQ(count(OpId()), 1);
  EXPECT_EQ(count(GraphId()), 1);
  EXPECT_EQ(count(Version()), 1);
  EXPECT_EQ(count(OpIndex()), 1);
}

TEST(Ir, HandleOutlivesItsIrSafely) {
  Tensor t;
  {
    Ir ir;
    t = ir.main_graph().scalar(1, f32);
  }
  EXPECT_THROW(t.name(), Error);
}

TEST(Ir, NamesCollideWithOneCounter) {
  Ir ir;
  Graph& main = ir.main_graph();
  for (const char* name : {"bias", "weight"}) main.variable(HostTensor::scalar(0), name);
  EXPECT_EQ(main.variable(HostTensor::scalar(0), "bias").name(), "bias__t0");
  EXPECT_EQ(main.variable(HostTensor::scalar(0), "weight").name(), "weight__t1");
}

// An op without a shape rule of its own.
const OpDef& copy_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Copy";
    d.name = "copy";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.infer = [](const OpView& op) { return std::vector<TensorSpec>{op.input(0)}; };
    return d;
  }();
  return def;
}

TEST(Ir, DeviceScopesNestAndRestore) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("f");
  const Tensor x = graph.input(f32_spec({2}), "x");
  const auto device_of_an_op = [&] {
    graph.emit(copy_def(), {x}, {});
    return graph.ops().back().device;
  };
  {
    DeviceScope on(graph, 1);
    EXPECT_EQ(device_of_an_op(), 1);
    {
      DeviceScope inner(graph, 0);
      EXPECT_EQ(device_of_an_op(), 0);
      EXPECT_THROW(DeviceScope(graph, -2), Error);
      EXPECT_EQ(device_of_an_op(), 0);
    }
    EXPECT_EQ(device_of_an_op(), 1);
  }
  EXPECT_EQ(device_of_an_op(), kInheritDevice);
}

TEST(Ir, LineScopesGiveOpsTheLineOfAnotherFrontEnd) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("f");
  const Tensor x = graph.input(f32_spec({2}), "x");
  const auto line_of_an_op = [&] {
    graph.emit(copy_def(), {x}, {});
    return graph.ops().back().provenance->line;
  };
  {
    Graph::LineScope outer("model.py:12");
    EXPECT_EQ(line_of_an_op(), "model.py:12");
    {
      Graph::LineScope inner("layers.py:3");
      EXPECT_EQ(line_of_an_op(), "layers.py:3");
    }
    EXPECT_EQ(line_of_an_op(), "model.py:12");
    // Other graphs of the thread have the line, too; other threads do not.
    Graph& other = ir.create_empty_graph("g");
    const Tensor y = other.input(f32_spec({2}), "y");
    other.emit(copy_def(), {y}, {});
    EXPECT_EQ(other.ops().back().provenance->line, "model.py:12");
    std::thread([&] { other.emit(copy_def(), {y}, {}); }).join();
    EXPECT_EQ(other.ops().back().provenance->line.find("ir_test.cc:"), 0u);
    try {
      graph.emit(copy_def(), {x, x}, {});
      ADD_FAILURE() << "an op with too many inputs was added";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("adding copy at model.py:12 to graph f"),
                std::string::npos)
          << e.what();
    }
  }
  EXPECT_EQ(line_of_an_op().find("ir_test.cc:"), 0u);
}

// A program, and the addresses of all that its accessors return references to.
struct Referenced {
  std::vector<const void*> addresses() const {
    return {&x.graph(),
            &x.name(),
            &x.spec(),
            &x.shape(),
            &x.meta_shape(),
            &f.name(),
            &f.block(),
            &f.input_ids(),
            &f.output_ids(),
            &f.ops(),
            &f.op(first),
            &f.op(first).outputs,
            &f.info(x),
            &f.info(x.id()),
            &f.spec(x.id()),
            &f.storage(f.info(x).storage),
            &ir.graph(f.id()),
            &ir.entries(),
            &ir.stream(stream.id),
            &ir.feeds()[0],
            &ir.remote_buffer_info(buffer.id),
            &site.op(),
            &site.parent(),
            &site.called_graph()};
  }
  // Adds a hundred of each, then moves, removes and renumbers ops.
  void grow() {
    for (int i = 0; i < 100; ++i) {
      f.emit(copy_def(), {x}, {});
      main.variable(HostTensor(f32_spec({2})));
      ir.h2d_stream(f32_spec({2}));
      ir.remote_buffer(f32_spec({2}));
      ir.infeed("feed" + std::to_string(i), {{"x", f32_spec({2})}});
      ir.entry_graph("entry" + std::to_string(i));
    }
    GraphEditor editor(f);
    editor.place({{first, f.ops().back().id, GraphEditor::Placement::Side::kAfter}});
    editor.append_outputs({f.handle(f.op(first).outputs[0])});
    editor.remove_ops({f.ops().front().id});
    editor.compact(TensorId(x.id() + 1));
    ir.grow(buffer, 5);
  }

  Ir ir;
  Graph& main = ir.main_graph();
  Graph& f = ir.create_empty_graph("a_name_that_is_longer_than_a_small_string");
  H2dStream stream = ir.h2d_stream(f32_spec({2}), "a_stream_with_a_long_name_of_its_own");
  RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 3);
  Infeed feed = ir.infeed("an_infeed_with_a_long_name_of_its_own", {{"x", f32_spec({2})}});
  Tensor x = f.input({{2}, f32, {4}}, "an_input_with_a_long_name_of_its_own");
  OpId first = (f.emit(copy_def(), {x}, {}), f.ops().back().id);
  CallSiteInfo site =
      ops::call_with_info(main, f, {main.variable({{2}, f32, {4}}, Initializer::constant(0), "w")});
};

// Every accessor returns the same object after the program has grown, and the object is readable.
// AddressSanitizer reports a read of freed memory.
TEST(Ir, ReferencesStayValidWhileTheProgramGrows) {
  Referenced p;
  const std::vector<const void*> before = p.addresses();
  const std::string& name = p.x.name();
  const Shape& shape = p.x.shape();
  const Shape& whole = p.x.meta_shape();
  const Op& op = p.f.op(p.first);
  const Op& call = p.site.op();
  const TensorInfo& info = p.f.info(p.x);
  const Storage& storage = p.f.storage(info.storage);
  const StreamInfo& stream = p.ir.stream(p.stream.id);
  const FeedInfo& feed = p.ir.feeds()[0];
  const RemoteBufferInfo& remote = p.ir.remote_buffer_info(p.buffer.id);

  p.grow();
  EXPECT_EQ(p.addresses(), before);
  EXPECT_EQ(name, "an_input_with_a_long_name_of_its_own");
  EXPECT_EQ(shape, Shape{2});
  EXPECT_EQ(whole, Shape{4});
  EXPECT_EQ(op.label(), "Copy.100");
  EXPECT_EQ(call.label(), "Call.101");
  EXPECT_EQ(info.name, name);
  EXPECT_EQ(storage.root, p.x.id());
  EXPECT_EQ(stream.name, "a_stream_with_a_long_name_of_its_own");
  EXPECT_EQ(feed.name, "an_infeed_with_a_long_name_of_its_own");
  EXPECT_EQ(remote.entries, 5);
  verify(p.ir);
}

TEST(Ir, LoopsOverOpsMayAddOps) {
  Referenced p;
  size_t seen = 0;
  for (const Op& op : p.f.ops()) {
    for (int i = 0; i < 100; ++i) p.f.emit(copy_def(), {p.x}, {});
    seen += op.inputs.size();
  }
  EXPECT_EQ(seen, 1u);
}

TEST(Ir, RemoteStoreGraphPrintsAsDocumented) {
  Ir ir;
  const RemoteBuffer buffer = ir.remote_buffer({{5}, f32, {}}, 2);
  Graph& load = ir.create_graph(
      "load_remote", [&](Graph& g, Tensor entry) { return g.remote_load(buffer, entry); },
      TensorSpec{{}, i32, {}});
  EXPECT_EQ(print_schedule(load),
            "Graph : load_remote_subgraph(0)\n"
            "  (%1) -> (%3) {\n"
            "    Init.100 () -> (%2 [(5,) float32])\n"
            "    RemoteLoad.101 (%2 [(5,) float32], %1 [() int32]) -> (%3 [(5,) float32])\n"
            "  }");
  verify(ir);
}

TEST(Ir, DotShowsWhatMakesEachVersion) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(HostTensor(f32_spec({2})), "a \"w\"");
  const RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}));
  Graph& store = ir.create_graph(
      "store", [&](Graph& g, Tensor x) { g.remote_store(buffer, 0, x); }, f32_spec({2}));
  ops::call(main, store, {w});
  main.remote_load_(buffer, 0, w);
  ops::call(main, store, {w});
  EXPECT_EQ(to_dot(ir),
            "digraph {\n"
            "  node [shape=box, fontname=monospace];\n"
            "  subgraph cluster_0 {\n"
            "    label=\"main\";\n"
            "    g0t0 [label=\"a \\\"w\\\" (2,) float32\", shape=ellipse];\n"
            "    op101 [label=\"Call.101 store_subgraph(0)\"];\n"
            "    g0t0 -> op101 [label=\"a \\\"w\\\"\"];\n"
            "    op102 [label=\"RemoteLoad.102\"];\n"
            "    g0t0 -> op102 [label=\"a \\\"w\\\"\"];\n"
            "    op103 [label=\"Call.103 store_subgraph(0)\"];\n"
            "    op102 -> op103 [label=\"a \\\"w\\\"\"];\n"
            "  }\n"
            "  subgraph cluster_1 {\n"
            "    label=\"store_subgraph(0)\";\n"
            "    g1t0 [label=\"x (2,) float32\", shape=ellipse];\n"
            "    op100 [label=\"RemoteStore.100\"];\n"
            "    g1t0 -> op100 [label=\"x\"];\n"
            "  }\n"
            "}\n");
}

TEST(Ir, CallNamesWhatIsMissing) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& g = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor) { return x; }, f32_spec({2}), f32_spec({3}));
  const Tensor x = main.variable(HostTensor(f32_spec({2})), "x");
  try {
    ops::call(main, g, {x});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Not enough inputs have been provided"),
              std::string::npos);
  }
  EXPECT_THROW(ops::call(main, g, {x, x}), Error);
}

// Returns the product aᵀ·b of row-major matrices with `rows` rows.
std::vector<double> transposed_product(const std::vector<double>& a, const std::vector<double>& b,
                                       size_t rows) {
  const size_t n = a.size() / rows, m = b.size() / rows;
  std::vector<double> c(n * m);
  for (size_t k = 0; k < rows; ++k) {
    for (size_t i = 0; i < n * m; ++i) c[i] += a[k * n + i / m] * b[k * m + i % m];
  }
  return c;
}

// Q is the only matrix with orthogonal columns for which R = QᵀA is triangular with a positive
// diagonal.
TEST(Initializers, ZeroedElementsLeaveTheOthers) {
  const TensorSpec spec = f32_spec({4, 3});
  const Initializer rule = Initializer::normal(0, 1);
  const Initializer zeroed = rule.zeroed(3, 6).keyed({5, 6});
  EXPECT_EQ(zeroed.text(), "normal(0, 1) with zeros in [3, 6)");
  EXPECT_EQ(rule.zeroed(2, 2).text(), rule.text());
  const HostTensor whole = zeroed.evaluate(spec);
  const std::vector<double> plain = rule.keyed({5, 6}).evaluate(spec).to_doubles();
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(at(whole.to_doubles(), i), i / 3 == 1 ? 0 : at(plain, i)) << i;
  // A part has the elements of the whole.
  InitialValue value(zeroed, spec);
  for (int64_t begin = 0; begin < 12; begin += 2) {
    std::vector<float> part(2);
    value.fill(begin, 2, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part[0], at(whole.as<float>(), begin)) << begin;
    EXPECT_EQ(part[1], at(whole.as<float>(), begin + 1)) << begin;
  }
  HostTensor one(TensorSpec{{4}, i32, {}});
  std::ranges::fill(one.as<int32_t>(), 7);
  EXPECT_EQ(Initializer::array(one).zeroed(1, 3).evaluate(one.spec()).to_doubles(),
            (std::vector<double>{7, 0, 0, 7}));
  EXPECT_THROW(rule.zeroed(3, 2), Error);
}

TEST(Initializers, OrthogonalMatricesAreTheFactorsOfNormalOnes) {
  constexpr size_t kRows = 40, kColumns = 30;
  const TensorSpec spec = f32_spec({kRows, kColumns});
  const Seed key{3, 4};
  const auto q = Initializer::orthogonal(kRows, kColumns, 1).keyed(key).evaluate(spec).to_doubles();
  const auto a = Initializer::normal(0, 1).keyed(key).evaluate(spec).to_doubles();
  const auto unit = transposed_product(q, q, kRows);
  const auto r = transposed_product(q, a, kRows);
  for (size_t i = 0; i < kColumns; ++i) {
    for (size_t j = 0; j < kColumns; ++j) {
      const size_t at = i * kColumns + j;
      EXPECT_NEAR(unit[at], i == j ? 1 : 0, 1e-6) << i << " " << j;
      if (i > j) {
        EXPECT_NEAR(r[at], 0, 1e-5) << i << " " << j;
      }
      if (i == j) {
        EXPECT_GT(r[at], 0) << i;
      }
    }
  }
}

TEST(Initializers, OrthogonalMatricesAreWideTooAndFollowOneAnother) {
  const Initializer rule = Initializer::orthogonal(2, 3, 2).keyed({5, 6});
  EXPECT_EQ(rule.text(), "orthogonal(2, 3, 2)");
  const std::vector<double> all = rule.evaluate(f32_spec({2, 2, 3})).to_doubles();
  for (const size_t m : {size_t{0}, size_t{6}}) {
    const double* q = &all[m];
    EXPECT_NEAR(q[0] * q[0] + q[1] * q[1] + q[2] * q[2], 4, 1e-6);
    EXPECT_NEAR(q[3] * q[3] + q[4] * q[4] + q[5] * q[5], 4, 1e-6);
    EXPECT_NEAR(q[0] * q[3] + q[1] * q[4] + q[2] * q[5], 0, 1e-6);
  }
  EXPECT_NE(all[0], all[6]);
  // A chunk may begin and end inside a matrix.
  InitialValue value(rule, f32_spec({2, 2, 3}));
  std::vector<float> part(7);
  value.fill(4, 7, std::as_writable_bytes(std::span(part)));
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(static_cast<double>(part[i]), all[4 + i]);
}

}  // namespace
}  // namespace sluice
