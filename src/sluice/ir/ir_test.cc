#include <gtest/gtest.h>

#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace {

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
    return graph.ops().back().where;
  };
  {
    Graph::LineScope outer(graph, "model.py:12");
    EXPECT_EQ(line_of_an_op(), "model.py:12");
    {
      Graph::LineScope inner(graph, "layers.py:3");
      EXPECT_EQ(line_of_an_op(), "layers.py:3");
    }
    EXPECT_EQ(line_of_an_op(), "model.py:12");
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
