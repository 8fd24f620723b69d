// Tests views of parts of tensors, and the values that loops leave in by-reference arguments.
// Results are compared with numbers computed by hand and with the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

HostTensor count(Shape shape) {
  HostTensor t(f32_spec(std::move(shape)));
  float next = 0;
  for (float& x : t.as<float>()) x = next++;
  return t;
}

class Aliases : public testing::Test {
 protected:
  Tensor number(double value) { return main.scalar(value, f32); }
  void add(const Tensor& t, double value) { ops::add_(t, number(value)); }

  /// Returns the value of `t` at this point of the program, as a run sends it.
  std::vector<float> run(const Tensor& t) {
    const D2hStream out = main.host_store(t, "out");
    Interpreter interpreter(ir);
    const HostTensor expected = interpreter.run()[out];
    Session session(ir, {.device = cpu_device({.threads = 2})});
    const auto sent = session.run({});
    EXPECT_THAT(sent[out].bytes(), ElementsAreArray(expected.bytes()));
    const auto elements = sent[out].as<float>();
    return {elements.begin(), elements.end()};
  }

  Ir ir;
  Graph& main = ir.main_graph();
};

TEST_F(Aliases, ATransposedViewSeesAndGivesWrites) {
  const Tensor w = main.variable(count({2, 3}), "w");
  const Tensor v = ops::transpose_(w);
  add(ops::slice_(v, {1}, {2}), 10);  // v[1] is w[:, 1].
  add(w, 100);
  EXPECT_THAT(run(ops::concat({ops::flatten(v), ops::flatten(w)})),
              ElementsAre(100, 103, 111, 114, 102, 105, 100, 111, 102, 103, 114, 105));
}

TEST_F(Aliases, PartsThatOverlapAgree) {
  const Tensor x = main.variable(count({5}), "x");
  const Tensor low = ops::slice_(x, {0}, {3});
  const Tensor high = ops::slice_(x, {std::nullopt}, {1}, {-1});  // 4, 3, 2
  add(low, 10);
  EXPECT_THAT(run(high), ElementsAre(4, 3, 12));
  add(high, 100);
  EXPECT_THAT(run(ops::concat({x, low})), ElementsAre(10, 11, 112, 103, 104, 10, 11, 112));
}

TEST_F(Aliases, AJoinedViewWritesItsParts) {
  const Tensor x = main.variable(count({4}), "x");
  const Tensor a = ops::slice_(x, {0}, {2});
  const Tensor b = ops::slice_(x, {2}, {4});
  const Tensor swapped = ops::concat_({b, a});
  ops::add_(swapped, main.constant(count({4}), "c"));
  EXPECT_THAT(run(x), ElementsAre(2, 4, 2, 4));
  add(a, 10);
  EXPECT_THAT(run(swapped), ElementsAre(2, 4, 12, 14));
}

TEST_F(Aliases, ViewsReachVariablesAndSubgraphs) {
  Graph& bump = ir.create_graph("bump", [](Graph& g) {
    const Tensor t = g.input(f32_spec({3, 2}), "t", Pass::kByReference);
    ops::add_(ops::slice_(t, {0}, {1}), g.scalar(5, f32));
    return Tensors{};
  });
  const Tensor w = main.variable(count({2, 3}), "w");
  ops::call(main, bump, {ops::transpose_(w)});
  EXPECT_THAT(run(w), ElementsAre(5, 1, 2, 8, 4, 5));
}

TEST_F(Aliases, AnOpThatWritesBothSidesIsRefused) {
  Graph& both = ir.create_graph("both", [](Graph& g) {
    const Tensor a = g.input(f32_spec({2, 2}), "a", Pass::kByReference);
    const Tensor b = g.input(f32_spec({2, 2}), "b", Pass::kByReference);
    ops::add_(a, b);
    ops::add_(b, a);
    return Tensors{};
  });
  const Tensor w = main.variable(count({2, 2}), "w");
  const Tensor v = ops::transpose_(w);
  EXPECT_THAT(error_of(ErrorKind::kUsage,
                       [&] {
                         ops::call(main, both, {w, v});
                       }),
              HasSubstr("show the same elements"));
}

// Each iteration first writes the result of the previous one to the by-reference input. The
// caller's tensor has the value from the last iteration.
TEST_F(Aliases, ACarriedInputByReferenceLeavesItsLastValue) {
  Graph& body = ir.create_graph("body", [](Graph& g) {
    const Tensor t = g.input(f32_spec({2}), "t", Pass::kByReference);
    ops::add_(t, g.scalar(1, f32));
    return t * 2.0;
  });
  const Tensor x = main.variable(count({2}), "x");
  const Tensor last = ops::repeat(main, body, 3, {x})[0];
  EXPECT_THAT(run(ops::concat({x, last})), ElementsAre(7, 11, 14, 22));
}

TEST_F(Aliases, ACarriedInputByReferenceOfANestedGraph) {
  Graph& body = ir.create_graph("body", [](Graph& g) {
    const Tensor t = g.input(f32_spec({2}), "t", Pass::kByReference);
    const Tensor u = g.input(f32_spec({2}), "u");
    ops::add_(t, u);
    return std::vector<Tensor>{u, t * 2.0};
  });
  Graph& outer = ir.create_graph("outer", [&](Graph& g) {
    const Tensor t = g.input(f32_spec({2}), "t", Pass::kByReference);
    const Tensor u = g.input(f32_spec({2}), "u", Pass::kByReference);
    return ops::repeat(g, body, 2, {t, u})[1];
  });
  const Tensor x = main.variable(count({2}), "x");
  const Tensor y = main.variable(HostTensor::of<float>({2}, f32, {10, 20}), "y");
  const Tensor last = ops::call(main, outer, {x, y})[0];
  // (0, 1) += (10, 20); then t = u = (10, 20), u = 2·(10, 21): t = (30, 62).
  EXPECT_THAT(run(ops::concat({x, y, last})), ElementsAre(30, 62, 10, 20, 60, 124));
}

}  // namespace
}  // namespace sluice::test
