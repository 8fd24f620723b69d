// Data parallel training: each replica has its own samples. All replicas use one mean of the
// gradients and keep equal weights.
#include <gmock/gmock.h>

#include <functional>

#include "../support/custom_updates.h"
#include "../support/gradient_check.h"
#include "replicas_util.h"
#include "sluice/exe/text.h"

namespace sluice::test {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kIn = 20;
constexpr int64_t kOut = 7;
constexpr int64_t kTrainingSteps = 4;

/// Linear regression with hand-written gradients; a loop calls the step as a function.
struct TrainingProgram {
  enum class Update { kReduced, kSharded };

  TrainingProgram(int replicas, Update update) : ir(replicas) {
    Graph& main = ir.main_graph();
    x = ir.h2d_stream(f32_spec({kBatch, kIn}), "x");
    target = ir.h2d_stream(f32_spec({kBatch, kOut}), "target");
    w = main.variable(f32_spec({kIn, kOut}), Initializer::normal(0, 0.3f).keyed({1, 2}), "w");
    b = main.variable(f32_spec({kOut}), Initializer::constant(0), "b");
    Graph& step = ir.create_empty_graph("step");
    const Tensor weight = step.input(w.spec(), "weight", Pass::kByReference);
    const Tensor bias = step.input(b.spec(), "bias", Pass::kByReference);
    loss = ir.d2h_stream(f32_spec({}), "loss");
    const Tensor rows = step.host_load(x);
    const Tensor error = ops::matmul(rows, weight) + bias - step.host_load(target);
    step.host_store(loss, ops::sum(error * error));
    learn(weight, ops::matmul(ops::transpose(rows), error), update);
    learn(bias, ops::sum(error, {.axes = {0}}), update);
    ops::repeat(main, step, kTrainingSteps - 1, {w, b});
    ops::call(main, step, {w, b});
  }

  static void learn(const Tensor& v, const Tensor& gradient, Update update) {
    if (update == Update::kReduced) {
      ops::replicated_all_reduce_(gradient, ops::CollectiveOp::kMean);
      ops::scaled_add_(v, gradient, 1, -0.01);
      return;
    }
    const Tensor mine = ops::replicated_reduce_scatter(gradient, ops::CollectiveOp::kMean, {},
                                                       ops::Sharding::kReplicated);
    const Tensor own = ops::replica_sharded_slice(v);
    ops::scaled_add_(own, mine, 1, -0.01);
    ops::copy_var_update_(v, ops::replicated_all_gather(own));
  }

  std::vector<std::pair<H2dStream, HostTensor>> data() const {
    const int64_t r = ir.replication();
    return {{x, drawn(axes(r, {kBatch, kIn}), f32, 1)},
            {target, drawn(axes(r, {kBatch, kOut}), f32, 2)}};
  }
  static Shape axes(int64_t replicas, std::vector<int64_t> dims) {
    if (replicas > 1) dims.insert(dims.begin(), replicas);
    dims.insert(dims.begin(), kTrainingSteps);
    return Shape(dims);
  }

  Ir ir;
  H2dStream x, target;
  D2hStream loss;
  Tensor w, b;
};

std::vector<StreamInput> inputs(const std::vector<std::pair<H2dStream, HostTensor>>& data) {
  std::vector<StreamInput> all;
  for (const auto& [stream, array] : data) all.push_back({stream, array});
  return all;
}

/// Returns array k of the first axis.
HostTensor entry(const HostTensor& all, int64_t k) {
  const Shape shape(std::vector<int64_t>(all.shape().begin() + 1, all.shape().end()));
  HostTensor one(TensorSpec{shape, all.dtype(), {}});
  const auto from = all.bytes().begin() + k * one.spec().bytes();
  std::copy(from, from + one.spec().bytes(), one.bytes().begin());
  return one;
}

TEST(DataParallel, TrainsToTheInterpretersBits) {
  for (const int replicas : {1, 2, 4}) {
    const TrainingProgram p(replicas, TrainingProgram::Update::kReduced);
    const auto data = p.data();
    Interpreter interpreter(p.ir);
    const Collected want = interpreter.run(inputs(data));
    for (const auto update :
         {TrainingProgram::Update::kReduced, TrainingProgram::Update::kSharded}) {
      const TrainingProgram q(replicas, update);
      const auto streams = q.data();
      const auto train = [&](const SessionOptions& options) {
        Session session(q.ir, options);
        const HostTensors got = session.run(inputs(streams));
        ASSERT_EQ(got[q.loss].shape(), TrainingProgram::axes(replicas, {}));
        for (int64_t k = 0; k < kTrainingSteps; ++k)
          EXPECT_TRUE(
              entry(got[q.loss], k).same_bits(want.entries(p.loss)[static_cast<size_t>(k)]));
        EXPECT_TRUE(session.read(q.w).same_bits(interpreter.read(p.w)));
        EXPECT_TRUE(session.read(q.b).same_bits(interpreter.read(p.b)));
        EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
      };
      SCOPED_TRACE(fmt::format("{} replicas", replicas));
      for (const int threads : {1, 2, 3, 4}) train({.device = cpu_device({.threads = threads})});
      for_each_group(replicas, [&](const auto& group) {
        for (const int threads : {1, 2})
          train({.device = cpu_device({.threads = threads}), .group = group});
      });
    }
  }
}

TEST(DataParallel, AnnouncesItsCollectives) {
  const TrainingProgram p(4, TrainingProgram::Update::kSharded);
  Session session(p.ir, {.device = cpu_device({.threads = 2})});
  const exe::Executable& exe = session.executable();
  EXPECT_EQ(exe.replicas, 4);
  EXPECT_EQ(exe.devices[exe::DeviceId(0)].workers,
            1);  // Two teams of one worker run two replicas each.
  ASSERT_EQ(exe.programs[0].collectives.size(), 1u);
  EXPECT_EQ(exe.programs[0].collectives[0],
            (exe::CollectiveCount{exe::DeviceId(0), exe::GroupId(0), 6 * kTrainingSteps}));
  EXPECT_EQ(exe::parse_text(exe::to_text(exe), "plan"), exe);
}

TEST(DataParallel, TeamsCutThePoolEvenly) {
  EXPECT_EQ(exe::workers_of_replica(2, 4), 1);
  EXPECT_EQ(exe::workers_of_replica(4, 2), 2);
  EXPECT_EQ(exe::workers_of_replica(3, 2), 3);
  EXPECT_EQ(exe::workers_of_replica(6, 4), 3);
  EXPECT_EQ(exe::workers_of_replica(1, 8), 1);
  EXPECT_EQ(exe::workers_of_replica(5, 1), 5);
}

TEST(DataParallel, ABudgetIsADevices) {
  const TrainingProgram p(4, TrainingProgram::Update::kReduced);
  const int64_t peak = Session(p.ir, {.device = cpu_device()}).planned_bytes();
  EXPECT_EQ(Session(p.ir, {.device = cpu_device({.memory = peak})}).measured_bytes(), peak);
  try {
    Session(p.ir, {.device = cpu_device({.memory = peak - 1})});
    FAIL() << "it fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kDoesNotFit);
  }
}

TEST(DataParallel, AnErrorOfOneReplicaStopsTheOthers) {
  Ir ir(4);
  Graph& main = ir.main_graph();
  const RemoteBuffer shelf = ir.remote_buffer(f32_spec({5}), 2);
  const H2dStream row = ir.h2d_stream({{}, i32, {}}, "row");
  const Tensor loaded = main.remote_load(shelf, main.host_load(row));
  const D2hStream out = main.host_store(ops::replicated_all_reduce(loaded), "out");
  for (const int threads : {1, 2, 4}) {
    Session session(ir, {.device = cpu_device({.threads = threads})});
    const auto run = [&](std::vector<int32_t> rows) {
      return session.run({{row, HostTensor::of<int32_t>({4}, i32, rows)}});
    };
    try {
      run({0, 1, 2, 0});
      FAIL() << "entry 2 of 2";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("entry 2 is outside its 2 entries"));
      EXPECT_THAT(e.what(), testing::HasSubstr("RemoteLoad"));
    }
    EXPECT_EQ(run({0, 1, 1, 0})[out].shape(), (Shape{4, 5}));
  }
}

TEST(DataParallel, RefusesCollectivesInBranchesAndForeignGroups) {
  const auto refusal = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      return e.what();
    }
    return "nothing";
  };
  Ir ir(2);
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({4});
  const Tensor flag = main.host_load(ir.h2d_stream({{}, boolean, {}}, "flag"));
  const Tensor x = main.host_load(ir.h2d_stream(spec, "x"));
  Graph& sum = ir.create_graph(
      "sum", [](Graph&, Tensor t) { return ops::replicated_all_reduce(t); }, spec);
  Graph& same = ir.create_graph(
      "same", [](Graph&, Tensor t) { return ops::identity(t); }, spec);
  main.host_store(ops::conditional(main, flag, sum, same, {x}, {x})[0], "y");
  EXPECT_THAT(refusal([&] { Session s(ir, {.device = cpu_device()}); }),
              testing::HasSubstr("uses a collective; a conditional may not communicate"));

  Ir few(2);
  Graph& graph = few.main_graph();
  const Tensor t = graph.host_load(few.h2d_stream(spec, "x"));
  ops::AllReduceOptions wide;
  wide.size = 4;
  graph.host_store(graph.emit(ops::replicated_all_reduce_def(), {t}, to_attrs(wide))[0], "y");
  EXPECT_THAT(
      refusal([&] { Session s(few, {.device = cpu_device()}); }),
      testing::HasSubstr(
          "size and stride of a group must be at most 2, the number of replicas, got 4 and 1"));
}

// The weight has a panel layout, and the gradient would take it too. But the collective requires
// row-major operands.
TEST(DataParallel, WeightsMayLieInPanels) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({64, 96}), "x");
  const Tensor x = main.host_load(in);
  const Tensor w =
      main.variable(f32_spec({96, 128}), Initializer::normal(0, 0.1f).keyed({5, 6}), "w");
  const Tensor y = ops::relu(ops::matmul(x, w));
  const Tensor gradient = ops::matmul(ops::transpose(x), y);
  ops::replicated_all_reduce_(gradient, ops::CollectiveOp::kMean);
  ops::scaled_add_(w, gradient, 1, -0.01);
  const D2hStream out = main.host_store(ops::matmul(x, w), "y");
  const HostTensor rows = drawn({2, 64, 96}, f32, 3);
  Interpreter interpreter(ir);
  Session session(ir, {.device = cpu_device({.threads = 2})});
  EXPECT_THAT(session.executable().variables[exe::VariableId(0)].layout,
              testing::HasSubstr("panels"));
  for (int step = 0; step < 2; ++step) {
    const Collected want = interpreter.run({{in, rows}});
    EXPECT_TRUE(session.run({{in, rows}})[out].same_bits(want[out]));
    EXPECT_TRUE(session.read(w).same_bits(interpreter.read(w)));
  }
}

// The weight and the optimizer's state are shards. A step gathers whole tensors where needed and
// reduces gradients to shards. Returns the weight and the state after three steps.
HostTensor updated_on(int replicas, nn::Optimizer optimizer, bool sharded, bool remote) {
  Ir ir(replicas);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({4, 7}), "x");
  const TensorSpec spec = f32_spec({7, 3});
  VariableInfo info;
  info.path = "w";
  info.initializer = Initializer::normal(0, 0.5f).keyed({1, 2});
  info.shard = sharded ? replicas : 0;
  const nn::ShardRule rule{.threshold = 0};
  const Tensor w =
      main.variable(sharded ? nn::replica_sharded_spec(ir, spec, rule) : spec, info, "w");
  const Tensor x = main.host_load(in);
  const Tensor y = ops::tanh(ops::matmul(x, nn::gather_replica_sharded_tensor(w)));
  const Tensor gradient = ops::matmul(ops::transpose(x), y);
  nn::NamedTensors grads;
  grads.merge("w", sharded
                       ? nn::reduce_replica_sharded_tensor(gradient, ops::CollectiveOp::kMean, rule)
                       : ops::replicated_all_reduce(gradient, ops::CollectiveOp::kMean));
  nn::NamedTensors variables;
  variables.merge("w", w);
  const nn::NamedTensors state =
      optimizer.apply(main, variables, grads, 0.01, {.remote_state = remote});
  Session session(ir, {.device = cpu_device({.threads = 2})});
  state.for_each([&](const std::string& key, const Tensor& t) {
    if (key == "w.step" || key == "w.started") return;
    EXPECT_EQ(session.read(t).shape(), spec.shape) << key;
    if (sharded && replicas == 4) {
      EXPECT_EQ(t.spec(), (TensorSpec{{6}, f32, {7, 3}})) << key;
    }
  });
  for (uint32_t step = 0; step < 3; ++step)
    session.run({{in, drawn({replicas, 4, 7}, f32, 30 + step)}});
  std::vector<float> all;
  Tensors read = state.values_flat();
  read.push_back(w);
  for (const Tensor& t : read) {
    const HostTensor whole = session.read(t);
    all.insert(all.end(), whole.as<float>().begin(), whole.as<float>().end());
  }
  return HostTensor::of<float>({static_cast<int64_t>(all.size())}, f32, all);
}

TEST(DataParallel, ShardedOptimizersHaveTheBitsOfWholeOnes) {
  for (const int replicas : {2, 4}) {
    for (const nn::Optimizer& optimizer :
         {nn::Optimizer::adam(), nn::Optimizer::sgd({.momentum = 0.9, .dampening = 0.5}),
          nn::Optimizer::rmsprop({.momentum = 0.9, .centering = nn::Centering::kOn}),
          nn::Optimizer::custom(Lion()), nn::Optimizer::custom(NormalizedSgd())}) {
      const HostTensor whole = updated_on(replicas, optimizer, false, false);
      for (const bool remote : {false, true}) {
        for (const bool sharded : {false, true}) {
          EXPECT_TRUE(updated_on(replicas, optimizer, sharded, remote).same_bits(whole))
              << replicas << sharded << remote;
        }
      }
    }
  }
}

// Its norm would be that of a shard.
struct NormOfAShard : nn::Module {
  void build(nn::Builder&, Tensor variable, Tensor grad, Tensor step_size) const {
    ops::scaled_add_(variable, grad * ops::rsqrt(ops::sum(grad * grad)), 1.0, step_size);
  }
  std::string cache_key() const { return ""; }
};

// The mask of an element would depend on its index in the shard.
struct DropoutOfAShard : nn::Module {
  void build(nn::Builder& b, Tensor variable, Tensor grad, Tensor step_size) const {
    const Tensor seed = b.graph().constant(HostTensor::of<uint32_t>({2}, u32, {1, 2}), "seed");
    ops::scaled_add_(variable, ops::dropout(grad, seed, 0.5), 1.0, step_size);
  }
  std::string cache_key() const { return ""; }
};

TEST(DataParallel, ShardsOfOneElementAndDropoutAreNoExceptions) {
  const TensorSpec one{{1}, f32, {2}}, four{{4}, f32, {8}};
  for (const TensorSpec& shard : {one, four}) {
    for (nn::Optimizer optimizer :
         {nn::Optimizer::custom(NormOfAShard()), nn::Optimizer::custom(DropoutOfAShard())}) {
      Ir ir(2);
      EXPECT_THAT(transforms::usage_error([&] { optimizer.step_graph(ir, shard, shard); }),
                  testing::HasSubstr("must be elementwise"));
    }
  }
}

TEST(DataParallel, AnUpdateOfAShardIsElementwiseOrHasAGroup) {
  const auto optimizer = [] { return nn::Optimizer::custom(NormOfAShard()); };
  EXPECT_NO_THROW(updated_on(2, optimizer(), false, false));
  EXPECT_THAT(transforms::usage_error([&] { updated_on(2, optimizer(), true, false); }),
              testing::HasSubstr("of an update of a shard must be elementwise; add a last "
                                 "parameter `const ops::Group&` to build"));
}

// Each replica has two devices. Each device runs its messages and collectives in its own order.
TEST(DataParallel, OnTwoDevices) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({6, 8}), "x");
  main.set_device(0);
  const Tensor a = ops::replicated_all_reduce(main.host_load(in));
  main.set_device(1);
  const Tensor b = ops::tanh(ops::replicated_all_reduce(a, ops::CollectiveOp::kMean));
  main.set_device(0);
  const D2hStream out =
      main.host_store(a + ops::replicated_all_reduce(b, ops::CollectiveOp::kMax), "y");
  const HostTensor x = drawn({2, 6, 8}, f32, 4);
  const Collected want = Interpreter(ir).run({{in, x}});
  for (const int threads : {1, 2}) {
    Session session(ir, {.device = cpu_device({.threads = threads}),
                         .more_devices = {cpu_device({.threads = threads})}});
    EXPECT_TRUE(session.run({{in, x}})[out].same_bits(want[out]));
  }
}

}  // namespace
}  // namespace sluice::test
