#include <gtest/gtest.h>

#include <functional>

#include "sluice/interp/interpreter.h"
#include "sluice/ir/call.h"
#include "sluice/ops/ops.h"

namespace sluice {
namespace {

using Floats = std::vector<float>;

HostTensor floats(const Shape& shape, const Floats& values) {
  return HostTensor::of<float>(shape, f32, values);
}

Floats values_of(const HostTensor& t) {
  const auto values = t.as<float>();
  return {values.begin(), values.end()};
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  return "";
}

/// Runs `f` in four replicas, each on its row of `x`, and returns the results as rows.
HostTensor run(const HostTensor& x, const std::function<Tensor(Tensor, const Ir&)>& f) {
  Ir ir(4);
  Graph& main = ir.main_graph();
  const Shape all = x.shape();
  const Shape own(std::vector<int64_t>(all.begin() + 1, all.end()));
  const H2dStream in = ir.h2d_stream({own, x.dtype(), {}}, "x");
  const Tensor t = main.host_load(in);
  const D2hStream out = main.host_store(f(t, ir), "y");
  return Interpreter(ir).run({{in, x}})[out];
}

const HostTensor kRows = floats({4, 3}, {1, 2, 3, 10, 20, 30, 100, 200, 300, 1000, 2000, 3000});

TEST(Replicas, AllReduce) {
  const auto reduce = [](ops::CollectiveOp op, int stride, int size) {
    return values_of(run(kRows, [=](Tensor x, const Ir& ir) {
      return ops::replicated_all_reduce(x, op, ir.replica_grouping(stride, size));
    }));
  };
  EXPECT_EQ(reduce(ops::CollectiveOp::kAdd, 1, 4),
            (Floats{1111, 2222, 3333, 1111, 2222, 3333, 1111, 2222, 3333, 1111, 2222, 3333}));
  EXPECT_EQ(reduce(ops::CollectiveOp::kMean, 1, 2),
            (Floats{5.5, 11, 16.5, 5.5, 11, 16.5, 550, 1100, 1650, 550, 1100, 1650}));
  EXPECT_EQ(reduce(ops::CollectiveOp::kMax, 2, 2),
            (Floats{100, 200, 300, 1000, 2000, 3000, 100, 200, 300, 1000, 2000, 3000}));
  EXPECT_EQ(reduce(ops::CollectiveOp::kMin, 2, 2),
            (Floats{1, 2, 3, 10, 20, 30, 1, 2, 3, 10, 20, 30}));
  EXPECT_EQ(reduce(ops::CollectiveOp::kMul, 1, 2),
            (Floats{10, 40, 90, 10, 40, 90, 1e5, 4e5, 9e5, 1e5, 4e5, 9e5}));
  EXPECT_EQ(reduce(ops::CollectiveOp::kSquareAdd, 1, 2)[4], 404);
  EXPECT_EQ(reduce(ops::CollectiveOp::kAdd, 1, 1), values_of(kRows));
}

TEST(Replicas, AllReduceInPlaceWritesItsOperand) {
  const HostTensor y = run(kRows, [](Tensor x, const Ir&) {
    ops::replicated_all_reduce_(x);
    return x;
  });
  EXPECT_EQ(values_of(y)[4], 2222);
}

TEST(Replicas, ReduceScatterGivesChunksPaddedWithZeros) {
  const auto scatter = [](ops::CollectiveOp op, int stride, int size) {
    return run(kRows, [=](Tensor x, const Ir& ir) {
      const Tensor y = ops::replicated_reduce_scatter(x, op, ir.replica_grouping(stride, size));
      EXPECT_EQ(y.meta_shape(), Shape{});
      return y;
    });
  };
  EXPECT_EQ(values_of(scatter(ops::CollectiveOp::kAdd, 1, 4)), (Floats{1111, 2222, 3333, 0}));
  EXPECT_EQ(values_of(scatter(ops::CollectiveOp::kMean, 2, 2)),
            (Floats{50.5, 101, 505, 1010, 151.5, 0, 1515, 0}));
  EXPECT_EQ(values_of(scatter(ops::CollectiveOp::kLocal, 1, 2)),
            (Floats{1, 2, 30, 0, 100, 200, 3000, 0}));
}

TEST(Replicas, ShardsKnowTheirTensorAndAreGatheredToIt) {
  const HostTensor y = run(kRows, [](Tensor x, const Ir&) {
    const Tensor shard =
        ops::replicated_reduce_scatter(x, ops::CollectiveOp::kAdd, {}, ops::Sharding::kReplicated);
    EXPECT_EQ(shard.spec(), (TensorSpec{{1}, f32, {3}}));
    EXPECT_EQ(ops::replica_sharded_slice(x).spec(), shard.spec());
    const Tensor twice = shard + shard;
    EXPECT_EQ(twice.meta_shape(), Shape{3});
    const Tensor whole = ops::replicated_all_gather(twice);
    EXPECT_EQ(whole.spec(), (TensorSpec{{3}, f32, {}}));
    return whole;
  });
  EXPECT_EQ(values_of(y),
            (Floats{2222, 4444, 6666, 2222, 4444, 6666, 2222, 4444, 6666, 2222, 4444, 6666}));
}

TEST(Replicas, AllGatherArranges) {
  const HostTensor x = floats({4, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto gather = [&](int64_t axis, ops::Gather arrangement, const Shape& shape) {
    return values_of(run(x, [&](Tensor t, const Ir& ir) {
      const Tensor y = ops::replicated_all_gather(t, axis, ir.replica_grouping(2, 2), arrangement);
      EXPECT_EQ(y.shape(), shape);
      return y;
    }));
  };
  EXPECT_EQ(gather(0, ops::Gather::kConcat, {4, 1}),
            (Floats{1, 2, 5, 6, 3, 4, 7, 8, 1, 2, 5, 6, 3, 4, 7, 8}));
  EXPECT_EQ(gather(-1, ops::Gather::kAuto, {2, 2}),
            (Floats{1, 5, 2, 6, 3, 7, 4, 8, 1, 5, 2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(gather(0, ops::Gather::kNewAxis, {2, 2, 1}), gather(0, ops::Gather::kConcat, {4, 1}));
  EXPECT_EQ(gather(1, ops::Gather::kNewAxis, {2, 2, 1}), gather(1, ops::Gather::kConcat, {2, 2}));
}

TEST(Replicas, SlicesDropAnAxisOfSizeOne) {
  const HostTensor x = floats({4, 2, 4}, Floats{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7,
                                                0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  const HostTensor wide = run(x, [](Tensor t, const Ir& ir) {
    return ops::replicated_slice(t, -1, ir.replica_grouping(2, 2));
  });
  EXPECT_EQ(wide.shape(), (Shape{4, 2, 2}));
  EXPECT_EQ(values_of(wide), (Floats{0, 1, 4, 5, 0, 1, 4, 5, 2, 3, 6, 7, 2, 3, 6, 7}));
  const HostTensor one = run(x, [](Tensor t, const Ir&) { return ops::replicated_slice(t, 1); });
  EXPECT_EQ(one.shape(), (Shape{4, 2}));
  EXPECT_EQ(values_of(one), (Floats{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(Replicas, RunInLockstepThroughCallsAndLoops) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({}), "x");
  const Tensor sum = main.variable(HostTensor::scalar(0), "sum");
  Graph& body = ir.create_empty_graph("turn");
  const Tensor total = body.input(f32_spec({}), "total", Pass::kByReference);
  ops::add_(total, ops::replicated_all_reduce(body.host_load(in)));
  ops::repeat(main, body, 3, {sum});
  const D2hStream out = main.host_store(sum, "sum");
  Interpreter interpreter(ir);
  const Collected got = interpreter.run({{in, floats({3, 2}, {1, 2, 10, 20, 100, 200})}});
  EXPECT_EQ(values_of(got[out]), (Floats{333, 333}));
  EXPECT_EQ(values_of(interpreter.read(sum)), Floats{333});
}

TEST(Replicas, BranchTheirOwnWayButNotToCollectives) {
  const auto program = [](bool communicates) {
    Ir ir(2);
    Graph& main = ir.main_graph();
    const H2dStream flag = ir.h2d_stream({{}, boolean, {}}, "flag");
    const Tensor x = main.scalar(3, f32);
    const auto arm = [&](const char* name, bool negate) -> Graph& {
      return ir.create_graph(
          name,
          [&](Graph&, Tensor t) {
            return negate         ? ops::neg(t)
                   : communicates ? ops::replicated_all_reduce(t)
                                  : ops::abs(t);
          },
          f32_spec({}));
    };
    const Tensor y = ops::conditional(main, main.host_load(flag), arm("then", true),
                                      arm("else", false), {x}, {x})[0];
    const D2hStream out = main.host_store(y, "y");
    return Interpreter(ir).run({{flag, HostTensor::of<bool>({2}, boolean, {true, false})}})[out];
  };
  EXPECT_EQ(values_of(program(false)), (Floats{-3, 3}));
  EXPECT_NE(refusal([&] { program(true); }).find("a collective must not be in a branch"),
            std::string::npos);
}

TEST(Replicas, VariablesAreSeenWhole) {
  Ir ir(4);
  Graph& main = ir.main_graph();
  VariableInfo by_group;
  by_group.path = "by_group";
  by_group.group = ir.replica_grouping(2, 2);
  by_group.initializer = Initializer::array(floats({2, 2}, {1, 2, 3, 4}));
  const Tensor a = main.variable(f32_spec({2}), by_group, "by_group");
  VariableInfo sharded;
  sharded.path = "sharded";
  sharded.shard = 4;
  sharded.initializer = Initializer::array(floats({5}, {1, 2, 3, 4, 5}));
  const Tensor b = main.variable({{2}, f32, {5}}, sharded, "sharded");
  const D2hStream outs[] = {main.host_store(a, "a"), main.host_store(b, "b")};
  ops::add_(b, ops::scalar_like(b, 1));
  Interpreter interpreter(ir);
  const Collected got = interpreter.run();
  EXPECT_EQ(values_of(got[outs[0]]), (Floats{1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(values_of(got[outs[1]]), (Floats{1, 2, 3, 4, 5, 0, 0, 0}));
  EXPECT_EQ(values_of(interpreter.read(b)), (Floats{2, 3, 4, 5, 6}));
  interpreter.write(b, floats({5}, {0, 0, 7, 0, 0}));
  interpreter.write(a, floats({2, 2}, {5, 6, 7, 8}));
  EXPECT_EQ(values_of(interpreter.read(b)), (Floats{0, 0, 7, 0, 0}));
  EXPECT_EQ(values_of(interpreter.run()[outs[0]]), (Floats{5, 6, 7, 8, 5, 6, 7, 8}));
}

TEST(Replicas, HaveRemoteEntriesOfTheirOwn) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const RemoteBuffer shelf = ir.remote_buffer(f32_spec({1}), 2);
  const H2dStream in = ir.h2d_stream(f32_spec({1}), "x");
  main.remote_store(shelf, 1, main.host_load(in));
  const D2hStream out = main.host_store(main.remote_load(shelf, 0), "y");
  Interpreter interpreter(ir);
  interpreter.write_remote(shelf, 0, floats({2, 1}, {3, 4}));
  EXPECT_EQ(values_of(interpreter.run({{in, floats({2, 1}, {1, 2})}})[out]), (Floats{3, 4}));
  EXPECT_EQ(values_of(interpreter.read_remote(shelf, 1)), (Floats{1, 2}));
}

TEST(Replicas, RefuseWhatIsNotTheirs) {
  Ir ir(4);
  Graph& main = ir.main_graph();
  const Tensor x = main.constant(kRows, "x");
  const auto expect = [](const std::function<void()>& f, const std::string& text) {
    EXPECT_NE(refusal(f).find(text), std::string::npos) << refusal(f);
  };
  expect(
      [&] {
        ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd, ReplicaGrouping::make(2, 1, 2));
      },
      "must group the 4 replicas of the program, got 2");
  expect(
      [&] {
        ops::replicated_all_reduce(x, ops::CollectiveOp::kAdd,
                                   ReplicaGrouping::from_assignments({0, 1, 1, 0}));
      },
      "has no single stride");
  expect([&] { ops::replicated_all_gather(x, 2); }, "axis 2 is outside [-2, 2)");
  expect([&] { ops::replicated_all_gather(x, 0, {}, ops::Gather::kMetaShape); },
         "kMetaShape requires a shard, but 'x' has no meta_shape");
  const Tensor shard = ops::replica_sharded_slice(x);
  expect([&] { ops::replicated_all_gather(shard, 1); }, "axis 1 is outside [-1, 1)");
  expect([&] { ops::replicated_slice(x, 1); },
         "the group size must divide axis 1 of (4, 3) float32, got 4 replicas");
  Interpreter interpreter(ir);
  expect([&] { ir.set_replication(2); },
         "replication 4 cannot become 2: a collective relies on it");
  expect([&] { interpreter.evaluate(main, {}); }, "must have 1 replica, got 4");
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  main.host_load(in);
  expect(
      [&] {
        interpreter.run({{in, floats({2}, {1, 2})}});
      },
      "the array must be (4, 2) float32, got (2,) float32");
}

}  // namespace
}  // namespace sluice
