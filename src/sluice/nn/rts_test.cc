#include "sluice/nn/rts.h"

#include <cmath>

#include "sluice/interp/interpreter.h"
#include "sluice/nn/module.h"
#include "sluice/nn/remote.h"
#include "sluice/nn/test_util.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {
namespace {

TEST(Shards, AreThoseOfLargeTensors) {
  Ir ir(4);
  const TensorSpec spec = f32_spec({6, 5});
  const TensorSpec shard{{8}, f32, {6, 5}};
  EXPECT_EQ(replica_sharded_spec(ir, spec, {.threshold = 30}), shard);
  EXPECT_EQ(replica_sharded_spec(ir, spec, {.threshold = 31}), spec);
  EXPECT_EQ(replica_sharded_spec(ir, spec, {.threshold = kNeverShard}), spec);
  EXPECT_EQ(replica_sharded_spec(ir, spec), spec);
  EXPECT_EQ(replica_sharded_spec(ir, shard, {.threshold = 0}), shard);
  EXPECT_EQ(replica_sharded_spec(ir, f32_spec({}), {.threshold = 0}), f32_spec({}));
  const ShardRule pairs{.threshold = 0, .group = ir.replica_grouping(2, 2)};
  EXPECT_EQ(replica_sharded_spec(ir, spec, pairs).shape, Shape{15});
  EXPECT_EQ(shard_count(ir, spec, pairs), 2);
  EXPECT_EQ(replica_sharded_spec(Ir(), spec, {.threshold = 0}), spec);
  const std::string error = usage_error([&] { replica_sharded_spec(ir, spec, {.threshold = -1}); });
  EXPECT_NE(error.find("threshold must be at least 0, got -1"), std::string::npos) << error;
}

/// Adds x to the variable w; both are shards.
struct ShardedAdd : Module {
  void build(Builder& b, Tensor x) const {
    const Tensor w = b.add_replica_sharded_variable_input("weight", constant(0.5), x.meta_shape(),
                                                          x.dtype(), Pass::kByReference);
    EXPECT_EQ(w.spec(), x.spec());
    ops::scaled_add_(w, x);
  }
};

TEST(Shards, AreReducedAddedAndGathered) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({3}), "x");
  const Tensor x = main.host_load(in);
  const NamedTensors grads = NamedTensors::from_dict({{"a", x}, {"b", ops::reshape(x, {3, 1})}});
  const auto [reduce, names] =
      reduce_replica_sharded_graph(ir, grads, ops::CollectiveOp::kMean, {.threshold = 2});
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(reduce.print_schedule(),
            "Graph : replica_reduce_subgraph(0)\n"
            "  (a=%1, b=%2) -> (%3, %4) {\n"
            "    ReplicatedReduceScatter.103 (%1 [(3,) float32]) -> (%3 [(2,) float32])\n"
            "    ReplicatedReduceScatter.104 (%2 [(3, 1) float32]) -> (%4 [(2,) float32])\n"
            "  }");
  const NamedTensors shards = NamedTensors::pack(names, reduce.bind(grads).call(&main));
  const auto [factories, add] = create_graph(ir, ShardedAdd(), reduce.graph().outputs()[0]);
  const NamedTensors variables = factories.init(main);
  add.bind(variables).call(shards["a"]);
  NamedTensors both = NamedTensors::from_dict({{"w", variables["weight"]}, {"x", x}});
  const auto [gather, keys] = all_gather_replica_sharded_graph(ir, both);
  const Tensors whole = gather.bind(both).call(&main);
  EXPECT_EQ(whole[0].spec(), f32_spec({3}));
  const D2hStream out = main.host_store(whole[0], "w");
  Interpreter run(ir);
  const Collected got = run.run({{in, HostTensor::of<float>({2, 3}, f32, {1, 2, 3, 3, 4, 5})}});
  EXPECT_EQ(got[out].to_doubles(), (std::vector<double>{2.5, 3.5, 4.5, 2.5, 3.5, 4.5}));
  EXPECT_EQ(run.read(variables["weight"]).to_doubles(), (std::vector<double>{2.5, 3.5, 4.5}));
}

struct Two : Module {
  Tensor build(Builder& b, Tensor x) const {
    b.add_variable_input("bias", normal(0, 1), {2});
    return x * b.add_variable_input("weight", normal(0, 1), {5});
  }
};

TEST(Shards, LiveInRemoteBuffersFromAThresholdOn) {
  const auto weights = [](int replicas, int64_t threshold) {
    Ir ir(replicas);
    Graph& main = ir.main_graph();
    const auto [factories, graph] = create_graph(ir, Two(), f32_spec({5}));
    const NamedRemoteBuffers buffers = named_variable_buffers(ir, factories, 2, threshold);
    const NamedTensors variables = factories.init_remote(main, buffers, 1);
    EXPECT_EQ(buffers["weight"].spec.meta_shape.empty(), replicas == 1 || threshold > 5);
    EXPECT_TRUE(buffers["bias"].spec.meta_shape.empty());
    const NamedTensors loaded = load_remote(main, buffers, 1);
    const Tensor whole = gather_replica_sharded_tensor(loaded["weight"]);
    const D2hStream out = main.host_store(whole, "whole");
    ops::scaled_add_(loaded["weight"], loaded["weight"]);
    store_remote(main, buffers, loaded, 1);
    Interpreter run(ir);
    const HostTensor first = run.read(variables["weight"]);
    const HostTensor seen = run.run()[out];
    const auto each = first.to_doubles();
    for (size_t i = 0; i < seen.to_doubles().size(); ++i)
      EXPECT_EQ(seen.to_doubles()[i], each[i % 5]);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(run.read(variables["weight"]).to_doubles()[i], 2 * each[i]);
    return each;
  };
  const auto want = weights(1, 0);
  EXPECT_EQ(weights(2, 5), want);
  EXPECT_EQ(weights(4, 5), want);
  EXPECT_EQ(weights(2, 6), want);
}

TEST(Shards, OfFactories) {
  const VariableFactory whole(f32_spec({7}), zeros());
  EXPECT_EQ(whole.sharded(0).spec(), whole.spec());
  EXPECT_EQ(whole.sharded(2).spec(), (TensorSpec{{4}, f32, {7}}));
  EXPECT_EQ(whole.sharded(2).sharded(4).spec(), whole.sharded(2).spec());
  const std::string error = usage_error([] { VariableFactory(f32_spec({}), zeros()).sharded(2); });
  EXPECT_NE(
      error.find("shards require at least one axis and one chunk, got () float32 in 2 chunks"),
      std::string::npos)
      << error;
}

TEST(Shards, OptimizersRefuseGradientsOfOtherTensors) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(f32_spec({4}), Initializer::constant(0), "w");
  const auto error = [&](const TensorSpec& gradient) {
    const NamedTensors grads = NamedTensors::from_dict(
        {{"w", main.variable(gradient, Initializer::constant(0), "gradient")}});
    return usage_error([&] {
      Optimizer::sgd().apply(main, NamedTensors::from_dict({{"w", w}}), grads, 0.1);
    });
  };
  const std::string other = error({{1}, f32, {4}});
  EXPECT_NE(other.find("the shard of variable 'w' must have the shape of (2,)"), std::string::npos)
      << other;
  const std::string another = error({{2}, f32, {3}});
  EXPECT_NE(another.find("variable 'w' must have the shape of (4,)"), std::string::npos) << another;
}

// With 11 elements over 2 or 4 replicas the last chunk is shorter; with 3 over 4 one chunk is
// empty.
TEST(Shards, NormsHaveTheBitsOfWholeTensors) {
  for (const int replicas : {1, 2, 4}) {
    const auto norms = [&](int64_t threshold, int group, double size) {
      Ir ir(replicas);
      Graph& main = ir.main_graph();
      GraphCache cache;
      ShardRule rule{.threshold = threshold};
      if (group > 0) rule.group = ir.replica_grouping(replicas / group, group);
      Tensors tensors;
      for (const int64_t n : {11, 3, 40}) {
        VariableInfo info;
        // Some chunks overflow, others do not.
        const double scale = n == 3 ? 1 : size;
        info.initializer = Initializer::normal(0, scale).keyed({1, static_cast<uint32_t>(n)});
        info.group = rule.group;
        const Tensor whole = main.variable(f32_spec({n}), info, fmt::format("t{}", n));
        const bool shard = shard_count(ir, whole.spec(), rule) > 0;
        tensors.push_back(shard ? ops::replica_sharded_slice(whole, rule.group) : whole);
      }
      const Tensor all = global_norm(tensors, cache, std::vector(tensors.size(), rule.group));
      const D2hStream norm = main.host_store(all, "norm");
      const D2hStream square = main.host_store(squared_norm(tensors[0], rule.group), "square");
      Interpreter run(ir);
      const Collected got = run.run();
      auto values = got[norm].to_doubles();
      for (const double v : got[square].to_doubles()) values.push_back(v);
      return values;
    };
    for (const int group : {0, 1, 2}) {
      if (group > replicas) continue;
      for (const double size : {1.0, 1e19, 1e30}) {
        const auto want = norms(kNeverShard, group, size);
        EXPECT_TRUE(std::isfinite(want[0])) << size;
        for (const int64_t threshold : {0, 4, 40})
          EXPECT_EQ(norms(threshold, group, size), want)
              << replicas << " " << threshold << " " << group << " " << size;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::nn
