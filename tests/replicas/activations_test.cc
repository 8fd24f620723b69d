// Phases that keep their activations in shards: all replicas of a group have equal activations, and
// each keeps its chunk.

#include "replicas_util.h"
#include "sluice/base/checked.h"
#include "sluice/base/test_refusals.h"
#include "sluice/exe/executable.h"
#include "sluice/nn/batch_serialise.h"

namespace sluice::test {
namespace {

constexpr int64_t kSteps = 3, kLayers = 2;
const TensorSpec kX = f32_spec({2, 3});

/// Two layers gelu(x @ w), forward and backward; x is the mean of a group's inputs. With `shards`,
/// all tensors in remote memory are kept in shards.
struct Phased {
  Phased(int replicas, const ReplicaGrouping& group, bool shards, IoMode mode) : ir(replicas) {
    Graph& main = ir.main_graph();
    std::optional<ReplicaGrouping> kept;
    if (shards) kept = group;
    Graph& entry = ir.create_graph(
        "entry",
        [&](Graph&, Tensor t) {
          const Tensor y = ops::replicated_all_reduce(t, ops::CollectiveOp::kMean, group);
          return Tensors{y, y * 0.5};
        },
        NamedInput{"x", kX});
    Graph& layer = ir.create_graph(
        "layer", [](Graph&, Tensor t, Tensor w) { return ops::gelu(ops::matmul(t, w)); },
        NamedInput{"x", kX}, NamedInput{"w", f32_spec({3, 3})});
    const Tensor x_in = layer.inputs()[0], w_in = layer.inputs()[1];
    const transforms::GradGraphInfo info = transforms::autodiff(layer);
    const auto buffer = [&](int64_t rows) {
      return nn::batch_serial_buffer(x_in, kSteps, rows, kept);
    };
    const auto row = [&](const RemoteBuffer& b, int64_t r) {
      nn::BatchHandle handle{b, r};
      handle.shard_group = kept;
      return handle;
    };
    const RemoteBuffer xs = buffer(kLayers + 1), dxs = buffer(kLayers + 1);
    x = ir.h2d_stream(kX, "x");
    dw = ir.d2h_stream(f32_spec({3, 3}), "dw");
    dx = ir.d2h_stream(kX, "dx");
    nn::BatchSerialiseOptions options{.steps = kSteps, .io_mode = mode};
    options.loads = {{entry.inputs()[0], x}};
    options.store_buffers = {{entry.outputs()[0], row(xs, 0)},
                             {entry.outputs()[1], row(dxs, kLayers)}};
    const auto in = transforms::batch_serialise(entry, options);
    options.rows = kLayers;
    options.loads = {{x_in, row(xs, 0)}, {info.graph().inputs()[0], row(dxs, 1)}};
    options.store_streams = {{info.graph().outputs()[0], dx}, {info.graph().outputs()[1], dw}};
    options.store_buffers = {{layer.outputs()[0], row(xs, 1)},
                             {info.graph().outputs()[0], row(dxs, 0)}};
    for (const auto& [type, t] : info.expected_inputs()) {
      if (shards && type == transforms::Connection::kFwd)
        options.shard_groups.emplace_back(t, group);
    }
    const auto phases = transforms::batch_serialise_fwd_and_grad(info, {w_in}, options);
    EXPECT_EQ(phases.forward.io_mode, mode) << phases.forward.note;
    std::vector<Tensor> weights;
    for (uint32_t k = 0; k < kLayers; ++k)
      weights.push_back(main.variable(drawn({3, 3}, f32, 10 + k), fmt::format("w{}", k)));
    const auto phase = [&](GraphId id, int64_t r, const Tensors& w) {
      Tensors given{main.scalar(static_cast<double>(r), i32)};
      given.insert(given.end(), w.begin(), w.end());
      ops::call(main, ir.graph(id), given);
    };
    phase(in.graph, 0, {});
    for (size_t k = 0; k < kLayers; ++k)
      phase(phases.forward.graph, static_cast<int64_t>(k), {weights[k]});
    for (size_t k = kLayers; k-- > 0;)
      phase(phases.gradient.graph, static_cast<int64_t>(k), {weights[k]});
  }

  HostTensor data() const {
    return drawn(entries_shape(kX.shape, kSteps, ir.replication()), f32, 1);
  }

  Ir ir;
  H2dStream x;
  D2hStream dw, dx;
};

using Floats = std::vector<float>;

// Returns the results of the interpreter, which reads and writes entries one by one.
Floats interpreted(const Phased& p) {
  const HostTensor all = p.data();
  Interpreter run(p.ir);
  const Collected got = run.run({{p.x, all}});
  Floats result;
  for (const D2hStream& stream : {p.dw, p.dx}) {
    for (const HostTensor& t : got.entries(stream))
      result.insert(result.end(), t.as<float>().begin(), t.as<float>().end());
  }
  return result;
}

Floats compiled(const Phased& p, int threads, int64_t& remote_elements) {
  Session session(p.ir, {.device = cpu_device({.threads = threads})});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  remote_elements = 0;
  for (const exe::RemoteBufferPlan& b : session.executable().remote_buffers)
    remote_elements += b.entries * b.spec.elements();
  const HostTensors got = session.run({{p.x, p.data()}});
  Floats result;
  for (const D2hStream& stream : {p.dw, p.dx})
    result.insert(result.end(), got[stream].as<float>().begin(), got[stream].as<float>().end());
  return result;
}

TEST(Activations, InShardsHaveTheBitsOfWholeOnesInLessMemory) {
  int way = 0;  // Each grouping and each io mode runs with one, two and three threads.
  for (const int replicas : {1, 2, 4}) {
    for (const ReplicaGrouping& group : groupings(replicas)) {
      ++way;
      const Floats want = interpreted(Phased(replicas, group, false, IoMode::kCompute));
      for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
        SCOPED_TRACE(fmt::format("{} {}", to_string(group), static_cast<int>(mode)));
        const Phased whole(replicas, group, false, mode), shards(replicas, group, true, mode);
        EXPECT_EQ(interpreted(shards), want);
        const int threads = 1 + way++ % 3;
        int64_t all = 0, own = 0;
        EXPECT_EQ(compiled(whole, threads, all), want);
        EXPECT_EQ(compiled(shards, threads, own), want);
        EXPECT_EQ(own * 6, all * ceil_div(6, group.size()));
      }
    }
  }
}

TEST(Activations, Refusals) {
  Ir ir(4);
  Graph& graph = ir.create_graph(
      "graph", [](Graph&, Tensor t) { return t + 1; }, NamedInput{"x", kX});
  const ReplicaGrouping pairs = ir.replica_grouping(1, 2);
  const Tensor x = graph.inputs()[0];
  const TensorSpec shard{{3}, f32, {2, 3}};
  Graph& local = ir.create_graph(
      "local", [](Graph&, Tensor t) { return t + 1; }, NamedInput{"s", shard});
  const nn::BatchHandle whole{ir.remote_buffer(kX), 0, pairs};
  expect_refused({
      {"a buffer of whole tensors",
       [&] {
         transforms::batch_serialise(graph, {.loads = {{x, whole}}});
       },
       "tensor 'x' ((3,) float32) does not match buffer 1 ((2, 3) float32)"},
      {"a shard of a shard", [&] { nn::batch_serial_buffer(local.inputs()[0], 1, 1, pairs); },
       "batch_serialise: a tensor with shard_group must be whole, got 's', a shard of (2, 3)"},
  });
}

}  // namespace
}  // namespace sluice::test
