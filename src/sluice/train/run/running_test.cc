#include <set>

#include "sluice/base/test_refusals.h"
#include "sluice/report/plan_report.h"
#include "sluice/train/cut/block_groups.h"
#include "sluice/train/cut/test_networks.h"

/// Running variables (nn::Builder::update_running) in training.
namespace sluice::train {
namespace {

// Subtracts the mean of the batch in training, and a running mean of it in evaluation.
struct Centre : nn::Module {
  explicit Centre(nn::RunningRule rule = {}) : rule(rule) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor running = b.add_running_input("mean", nn::constant(0.25), {x.dim(-1)});
    if (b.mode() == nn::RunMode::kEvaluate) return x - running;
    const Tensor mean = ops::mean(x, {.axes = {0}});
    b.update_running(running, mean, rule);
    return x - mean;
  }
  nn::RunningRule rule;
};

// A residual block with a running variable two modules below it.
struct Residual : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return x + inner(b, x); }
  nn::Child<nn::Sequential<nn::Linear, Centre, nn::Tanh>> inner{
      *this, "inner", nn::Linear(kWidth), Centre({.keep = 0.5, .take = 0.5}), nn::Tanh()};
};

// Equal blocks in a row, and running variables in the first block and the last one, which runs
// forward and backward at once.
Network with_running(int rows = 5) {
  return network([rows](nn::Builder& b, const Inputs& in) {
    std::optional<nn::Block> block(std::in_place, b, "in");
    Tensor x = b.inlined("centre", Centre(), linear(b, "in", in["x"]));
    for (int i = 0; i < rows; ++i) {
      block.emplace(b, fmt::format("r{}", i));
      x = b.inlined(fmt::format("r{}", i), Residual(), x);
    }
    block.emplace(b, "out");
    x = b.inlined("last", Centre({.keep = 0, .take = 1}), linear(b, "fc", x));
    return results(in, linear(b, "out", x, 3));
  });
}

TEST(Running, HasTheBitsOfTheResidentStepInPhases) { expect_one_digest(with_running()); }

constexpr TensorLocations kAll{
    .optimizer = kRemote, .weights = kRemote, .activations = kRemote, .accumulators = kRemote};

// The rows run in loops that load, update and store the running variables of three rows.
TEST(Running, HasTheBitsOfTheResidentStepInLoopsOverRows) {
  bool on_device = false;
  for (const int rows : {11, 13}) {
    const Network n = with_running(rows);
    for (const int replicas : {1, 2}) {
      const std::string expected = run(n, {.accumulate = 3}, replicas).digest;
      for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
        Options phased{.strategy = train::phased(),
                       .accumulate = 3,
                       .locations = kAll,
                       .io_mode = mode,
                       .recompute = {.all = rows == 13}};
        phased.locations.min_elements_sharded = 4;
        on_device = !on_device;
        if (on_device) phased.locations.accumulators = Location::kDevice;
        EXPECT_EQ(run(n, phased, replicas, on_device ? 1 : 2).digest, expected)
            << rows << " " << replicas;
      }
    }
  }
}

TEST(Running, BlocksWithRunningVariablesMayNameDevices) {
  const auto on = [](int second) {
    return network([second](nn::Builder& b, const Inputs& in) {
      std::optional<nn::Block> block(std::in_place, b, "A", nn::BlockOptions{.device = 0});
      Tensor x = b.inlined("a", Residual(), in["x"]);
      block.reset();
      block.emplace(b, "B", nn::BlockOptions{.device = second});
      x = b.inlined("b", Residual(), x);
      block.reset();
      block.emplace(b, "C", nn::BlockOptions{.device = 0});
      return results(in, linear(b, "c", x, 3));
    });
  };
  for (const int64_t accumulate : {1, 3}) {
    const Options options{.accumulate = accumulate};
    EXPECT_EQ(run(on(0), options).digest, run(on(1), options, 1, 2, 1).digest);
  }
}

std::vector<int64_t> rows_of(const Network& n) {
  Ir ir;
  const NetworkGraph graph = n.build(ir, nn::RunMode::kTrain);
  const Cut parts = cut(graph);
  std::vector<int64_t> rows;
  for (const BlockGroup& g : group_blocks(graph, parts, {}).groups) rows.push_back(g.rows);
  return rows;
}

TEST(Running, BlocksAreEqualIfTheirUpdatesAre) {
  EXPECT_EQ(rows_of(with_running(4)), (std::vector<int64_t>{1, 4, 1}));
  // The rules of rows 2 and 3 differ from those of rows 0 and 1.
  EXPECT_EQ(rows_of(network([](nn::Builder& b, const Inputs& in) {
              Tensor x = linear(b, "in", in["x"]);
              for (int i = 0; i < 4; ++i) {
                const nn::RunningRule rule{.keep = i < 2 ? 0.5 : 0.25};
                x = b.inlined(fmt::format("r{}", i), Centre(rule), x);
              }
              return results(in, linear(b, "out", x, 3));
            })),
            (std::vector<int64_t>{1, 2, 2, 1}));
}

// The batch norm of a field, whose statistics do not depend on weights.
Network normalized_field() {
  return network([](nn::Builder& b, const Inputs& in) {
    return results(in, linear(b, "fc", b.inlined("norm", nn::BatchNorm(), in["x"]), 3));
  });
}

HostTensor ramp(const TensorSpec& spec, int update) {
  HostTensor x(spec);
  float next = static_cast<float>(update);
  for (float& v : x.as<float>()) v = std::sin(next += 1.5f);
  return x;
}

// PyTorch's running statistics, computed in double: micro-batches in ascending order, each with
// momentum 0.1 and the unbiased variance, then the mean over replicas.
TEST(Running, BatchNormHasTheStatisticsOfItsFormula) {
  constexpr int kMicroBatches = 3, kUpdates = 2, kReplicas = 2;
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    Ir ir(kReplicas);
    const Training t = build_training(
        ir, normalized_field(), nn::Optimizer::adam(),
        {.strategy = strategy, .accumulate = kMicroBatches, .locations = kAll, .seed = 1});
    Session session(ir, {.device = cpu_device(), .remote = "host"});
    StepArrays arrays(t);
    std::vector<double> mean(kWidth, 0), variance(kWidth, 1);
    for (int update = 0; update < kUpdates; ++update) {
      HostTensor& x = arrays.fields[0];
      x = ramp(x.spec(), update);
      session.run(arrays.inputs(t), "train");
      const auto value = [&](int micro_batch, int replica, int64_t row, size_t c) {
        const auto at = ((micro_batch * kReplicas + replica) * kBatch + row) * kWidth;
        return static_cast<double>(x.as<float>()[static_cast<size_t>(at) + c]);
      };
      for (size_t c = 0; c < kWidth; ++c) {
        double means = 0, variances = 0;
        for (int r = 0; r < kReplicas; ++r) {
          double own_mean = mean[c], own_variance = variance[c];
          for (int m = 0; m < kMicroBatches; ++m) {
            double sum = 0, squares = 0;
            for (int64_t row = 0; row < kBatch; ++row) sum += value(m, r, row, c);
            for (int64_t row = 0; row < kBatch; ++row)
              squares += std::pow(value(m, r, row, c) - sum / kBatch, 2);
            own_mean = 0.9 * own_mean + 0.1 * sum / kBatch;
            own_variance = 0.9 * own_variance + 0.1 * squares / (kBatch - 1);
          }
          means += own_mean / kReplicas;
          variances += own_variance / kReplicas;
        }
        mean[c] = means;
        variance[c] = variances;
      }
    }
    const HostTensor got_mean = session.read(t.variables["norm.running_mean"]);
    const HostTensor got_variance = session.read(t.variables["norm.running_var"]);
    for (size_t c = 0; c < kWidth; ++c) {
      EXPECT_NEAR(static_cast<double>(got_mean.as<float>()[c]), mean[c], 1e-6);
      EXPECT_NEAR(static_cast<double>(got_variance.as<float>()[c]), variance[c], 1e-6);
    }
  }
}

// Optimizers, their groups and clipping see weights only.
TEST(Running, OptimizersDoNotSeeRunningVariables) {
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    Ir ir;
    const Training t =
        build_training(ir, normalized_field(), nn::Optimizer::adamw({.weight_decay = 0.5}),
                       {.strategy = strategy, .max_grad_norm = 0.1});
    EXPECT_TRUE(t.variables.has_leaf("norm.running_mean"));
    EXPECT_TRUE(t.state.contains("norm.weight"));
    EXPECT_FALSE(t.state.contains("norm.running_mean"));
    EXPECT_FALSE(t.state.contains("norm.running_var"));
  }
}

// Running variables wait where weights wait, if they have enough elements.
TEST(Running, WaitsWithTheWeights) {
  const auto remote = [](const Options& options) {
    Ir ir;
    const Training t = build_training(ir, normalized_field(), nn::Optimizer::sgd(), options);
    const Tensor& v = t.variables["norm.running_mean"];
    return v.graph().info(v).variable->location.remote();
  };
  const TensorLocations weights{.weights = kRemote};
  EXPECT_FALSE(remote({}));
  EXPECT_TRUE(remote({.locations = weights}));
  EXPECT_TRUE(remote({.accumulate = 2, .locations = weights}));
  EXPECT_FALSE(remote({.locations = {.weights = kRemote, .min_elements_off_device = kWidth + 1}}));
  for (const Location activations : {Location::kDevice, kRemote}) {
    TensorLocations where{.activations = activations};
    EXPECT_FALSE(remote({.strategy = phased(), .locations = where}));
    where.weights = kRemote;
    EXPECT_TRUE(remote({.strategy = phased(), .locations = where}));
  }
}

// The names of all that memories hold at their peak.
std::set<std::string> peak_objects(const Network& n, const Options& options) {
  Ir ir;
  build_training(ir, n, nn::Optimizer::sgd(), options);
  const Session session(ir, {.remote = "host"});
  std::set<std::string> names;
  for (const report::MemoryShares& memory : report::plan_report(session.executable(), 100).shares) {
    for (const report::PeakObjectGroup& h : memory.peak_objects)
      names.insert(h.kind + ": " + h.model_name);
  }
  return names;
}

TEST(Running, ReportsNameRunningVariablesAmongTheHolders) {
  const auto resident = peak_objects(normalized_field(), {});
  EXPECT_TRUE(resident.contains("variables: norm.running_mean"));
  EXPECT_TRUE(resident.contains("variables: norm.running_var"));
  // The rows of a loop have one remote buffer.
  const auto phased =
      peak_objects(with_running(), {.strategy = train::phased(), .locations = kAll});
  EXPECT_TRUE(phased.contains("variables: centre.mean"));
  EXPECT_TRUE(phased.contains("variables: r0.inner.1.mean … r4.inner.1.mean"));
}

// A checkpoint has running variables by path. A training that continues from it has the bits of a
// training without a break.
TEST(Running, ACheckpointHasRunningVariables) {
  const std::string file = testing::TempDir() + "sluice_running.safetensors";
  const auto build = [](Ir ir, const TensorLocations& where) {
    return build_training(ir, normalized_field(), nn::Optimizer::adam(),
                          {.accumulate = 2, .locations = where, .seed = 4});
  };
  const auto step = [](Session& session, const Training& t, int update) {
    StepArrays arrays(t);
    arrays.fields[0] = ramp(arrays.fields[0].spec(), update);
    session.run(arrays.inputs(t), "train");
  };
  const auto values = [](const Session& session) {
    Digest digest;
    session.each_variable([&](const std::string& path, const HostTensor& value) {
      digest.add(std::as_bytes(std::span(path)));
      digest.add(value.bytes());
    });
    return digest.hex();
  };
  Ir ir;
  const Training t = build(ir, {});
  Session session(ir);
  step(session, t, 0);
  session.save(file);
  const std::string saved = values(session);
  step(session, t, 1);
  Ir other;
  const Training u = build(other, kAll);
  Session loaded(other, {.remote = "host"});
  EXPECT_NE(values(loaded), saved);
  EXPECT_TRUE(loaded.load(file).empty());
  EXPECT_EQ(values(loaded), saved);
  step(loaded, u, 1);
  EXPECT_EQ(values(loaded), values(session));
}

// A running variable that training only reads is a constant, and one that only evaluation reads
// keeps its first value.
TEST(Running, TrainingMayReadAVariableInsteadOfUpdatingIt) {
  expect_bits_of_resident(network([](nn::Builder& b, const Inputs& in) {
    const Tensor fixed = b.add_running_input("fixed", nn::normal(0, 1), {kWidth});
    const Tensor late = b.add_running_input("late", nn::normal(0, 1), {kWidth});
    Tensor x = linear(b, "a", in["x"]) + fixed;
    x = linear(b, "b", ops::tanh(x)) * fixed;
    if (in.mode() == nn::RunMode::kEvaluate) x = x + late;
    return results(in, linear(b, "out", x, 3));
  }));
}

TEST(Running, Refusals) {
  const auto of = [](Written::Build build) {
    return [=] { network(build).build(Ir(), nn::RunMode::kTrain); };
  };
  expect_refused({
      {"read and updated", of([](nn::Builder& b, const Inputs& in) {
         const Tensor r = b.add_running_input("r", nn::zeros(), {kWidth});
         b.update_running(r, ops::mean(in["x"], {.axes = {0}}));
         return results(in, linear(b, "a", in["x"] + r, 3));
       }),
       "network: running variable 'r' must be read or updated in training, got both"},
      {"updated by a graph that the network calls", of([](nn::Builder& b, const Inputs& in) {
         const auto [factories, graph] = nn::create_graph(b.ir(), Centre(), in["x"]);
         const auto variables = b.add_variable_inputs("centre", factories);
         return results(in, linear(b, "a", graph.bind(variables).call(in["x"])[0], 3));
       }),
       "network: running variable 'centre.mean' must be updated by the network's own graph"},
      {"updated by a field", of([](nn::Builder& b, const Inputs& in) {
         b.update_running(b.add_running_input("r", nn::zeros(), {kBatch, kWidth}), in["x"]);
         return results(in, linear(b, "a", in["x"], 3));
       }),
       "the value of running variable 'r' must be a tensor that build() computed, got 'x'"},
      {"updated by a value that is overwritten", of([](nn::Builder& b, const Inputs& in) {
         const Tensor mean = ops::mean(in["x"], {.axes = {0}});
         b.update_running(b.add_running_input("r", nn::zeros(), {kWidth}), mean);
         return results(in, linear(b, "a", in["x"] + ops::relu_(mean), 3));
       }),
       "the value of running variable 'r' must not be overwritten after update_running()"},
  });
}

}  // namespace
}  // namespace sluice::train
