#include "sluice/transforms/batch_serialise.h"

#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/random.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/recompute.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

constexpr int64_t kSteps = 5;
const TensorSpec kX = f32_spec({2, 3});

// Calls graph `phase` for row `row`. `given` has the parent tensors by input of the original graph.
void call_phase(Graph& main, const BatchSerialised& phase, int64_t row, const TensorMap& given,
                const Tensor& seed = {}) {
  Graph& g = main.ir().graph(phase.graph);
  Tensors first{main.scalar(static_cast<double>(row), i32)};
  if (seed.valid()) first.push_back(seed);
  TensorMap named;
  for (const auto& [original, input] : phase.inputs) {
    for (const auto& [t, value] : given) {
      const bool there = std::any_of(named.begin(), named.end(),
                                     [&, in = input](const auto& p) { return p.first == in; });
      if (t == original && !there) named.emplace_back(input, value);
    }
  }
  EXPECT_TRUE(ops::call(main, g, first, named).empty());
}

enum class Plan { kResident, kCompute, kIo, kOverlapped, kRecompute };

// Two layers gelu(x @ w) that share their graphs. The loss is mean(x·x). Its gradient is computed
// without a graph.
class TwoLayers {
 public:
  explicit TwoLayers(Plan plan)
      : plan_(plan),
        accumulation_(
            autodiff_with_accumulation(layer_, {w_in_}, {"w"}, {.grads_required = {x_in_}})),
        info_(accumulation_.info) {
    make_state();
    if (plan == Plan::kResident) {
      run_resident();
    } else {
      run_phases();
    }
    verify(ir_);
  }

  // Returns losses, then accumulated gradients.
  std::vector<HostTensor> train() const {
    Interpreter run(ir_);
    std::vector<HostTensor> feed;
    for (int64_t s = 0; s < kSteps; ++s) {
      std::vector<float> values;
      for (int i = 0; i < 6; ++i) values.push_back(std::sin(static_cast<float>(7 * s + i)));
      feed.push_back(HostTensor::of<float>({2, 3}, f32, values));
    }
    const Collected sent = run.run({{images_, HostTensor::stack(feed)}});
    std::vector<HostTensor> result = sent.entries(losses_);
    for (const Tensor& a : accumulators_) result.push_back(run.read(a));
    return result;
  }

 private:
  void make_state() {
    TensorMap added;  // {input of the gradient graph, input of the graph in use}
    for (const AddedInput& a : accumulation_.added) added.emplace_back(a.input, a.input);
    if (plan_ == Plan::kRecompute) {
      const RecomputeResult recomputed = recompute_graph(info_);
      for (auto& [from, to] : added) {
        for (const auto& [old, fresh] : recomputed.inputs) {
          if (old == from) to = fresh;
        }
      }
      info_ = recomputed.info;
    }
    for (int k = 0; k < 2; ++k) {
      weights_.push_back(main_.variable(HostTensor::of<float>(
          {3, 3}, f32, {0.1f, -0.7f, 0.4f, 0.9f, 0.3f, -0.2f, 0.5f, 0.8f, -0.1f * (k + 1)})));
      state_.push_back({{w_in_, weights_.back()}});
      for (size_t a = 0; a < added.size(); ++a) {
        const Tensor v = main_.variable(HostTensor(accumulation_.added[a].spec));
        state_.back().emplace_back(added[a].second, v);
        accumulators_.push_back(v);
      }
    }
  }

  void run_resident() {
    for (int64_t s = 0; s < kSteps; ++s) {
      Tensor x = ops::call(main_, entry_, {main_.host_load(images_)})[0];
      std::vector<CallSiteInfo> calls;
      for (size_t k = 0; k < 2; ++k) {
        calls.push_back(ops::call_with_info(main_, layer_, {x, weights_[k]}));
        x = calls[k].output(0);
      }
      const Tensors end = ops::call(main_, top_, {x});
      main_.host_store(losses_, end[1]);
      Tensor dx = end[0];
      for (size_t k = 2; k-- > 0;) {
        TensorMap given = info_.inputs_dict(calls[k]);
        given.insert(given.end(), state_[k].begin() + 1, state_[k].end());
        dx = ops::call(main_, info_.graph(), {dx}, given)[0];
      }
    }
  }

  void run_phases() {
    const RemoteBuffer xs = batch_serial_buffer(x_in_, kSteps, 1);
    const RemoteBuffer dxs = batch_serial_buffer(x_in_, kSteps, 1);
    const IoMode mode = plan_ == Plan::kCompute      ? IoMode::kCompute
                        : plan_ == Plan::kOverlapped ? IoMode::kIoOverlapped
                                                     : IoMode::kIo;
    BatchSerialiseOptions options{.steps = kSteps, .io_mode = mode};
    options.loads = {{entry_.inputs()[0], images_}};
    options.store_buffers = {{entry_.outputs()[0], BatchHandle{xs, RowOffset::first()}}};
    const BatchSerialised in = batch_serialise(entry_, options);
    options.rows = 2;
    options.loads = {{x_in_, BatchHandle{xs, 0}}, {info_.graph().inputs()[0], BatchHandle{dxs, 1}}};
    options.store_buffers = {{layer_.outputs()[0], BatchHandle{xs, 1}},
                             {info_.graph().outputs()[0], BatchHandle{dxs, 0}}};
    const BatchSerialisedPair layers = batch_serialise_fwd_and_grad(info_, {w_in_}, options);
    options.rows = 1;
    options.loads = {{top_.inputs()[0], BatchHandle{xs, 2}}};
    options.store_streams = {{top_.outputs()[1], losses_}};
    const RowOffset third([](const Tensor& row) { return row + 2.0; });
    options.store_buffers = {{top_.outputs()[0], BatchHandle{dxs, third}}};
    const BatchSerialised end = batch_serialise(top_, options);
    ir_.grow(dxs, 3 * kSteps);
    EXPECT_EQ(ir_.remote_entries(xs), 3 * kSteps);
    EXPECT_EQ(layers.forward.io_mode, mode) << layers.forward.note;
    // Kept activations have their own buffer with one row per layer. Recomputation does not keep
    // activations.
    EXPECT_EQ(ir_.remote_buffer_count(), plan_ == Plan::kRecompute ? 2 : 3);
    if (plan_ != Plan::kRecompute) {
      EXPECT_EQ(ir_.remote_buffer_info(3).entries, 2 * kSteps);
    }
    call_phase(main_, in, 0, {});
    for (int64_t k = 0; k < 2; ++k)
      call_phase(main_, layers.forward, k, state_[static_cast<size_t>(k)]);
    call_phase(main_, end, 0, {});
    for (int64_t k = 2; k-- > 0;)
      call_phase(main_, layers.gradient, k, state_[static_cast<size_t>(k)]);
  }

  Plan plan_;
  Ir ir_;
  Graph& main_ = ir_.main_graph();
  Graph& layer_ = ir_.create_graph(
      "layer", [](Graph&, Tensor x, Tensor w) { return ops::gelu(ops::matmul(x, w)); },
      NamedInput{"x", kX}, NamedInput{"w", f32_spec({3, 3})});
  Tensor x_in_ = layer_.inputs()[0];
  Tensor w_in_ = layer_.inputs()[1];
  AccumulationResult accumulation_;
  GradGraphInfo info_;
  Graph& top_ = ir_.create_graph(
      "top",
      [](Graph&, Tensor y) {
        return Tensors{y * 0.5, ops::mul(y, y)};
      },
      NamedInput{"y", kX});
  Graph& entry_ = ir_.create_graph(
      "entry", [](Graph&, Tensor x) { return x + 0.0; }, NamedInput{"x", kX});
  H2dStream images_ = ir_.h2d_stream(kX, "images");
  D2hStream losses_ = ir_.d2h_stream(kX, "losses");
  std::vector<Tensor> weights_;
  std::vector<TensorMap> state_;
  Tensors accumulators_;
};

std::vector<HostTensor> train(Plan plan) { return TwoLayers(plan).train(); }

// The exact bits as text.
std::string bits(const HostTensor& t) {
  std::string text;
  for (const double x : t.to_doubles()) text += fmt::format("{:a} ", x);
  return text;
}

TEST(BatchSerialise, PhasesInEveryModeHaveTheBitsOfOneMicroBatchAfterAnother) {
  const auto resident = train(Plan::kResident);
  ASSERT_EQ(resident.size(), static_cast<size_t>(kSteps) + 4);
  for (const Plan plan : {Plan::kCompute, Plan::kIo, Plan::kOverlapped, Plan::kRecompute}) {
    const auto phased = train(plan);
    ASSERT_EQ(phased.size(), resident.size());
    for (size_t i = 0; i < resident.size(); ++i) {
      EXPECT_EQ(bits(phased[i]), bits(resident[i]))
          << "plan " << static_cast<int>(plan) << " array " << i;
    }
  }
}

struct Noisy {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& graph = ir.create_graph(
      "noisy",
      [](Graph&, Tensor x, Tensor seed, Tensor total) {
        const Tensor y = x + ops::random_uniform(seed, {2, 3});
        ops::add_(total, y);
        return y;
      },
      NamedInput{"x", kX}, NamedInput{"seed", {{2}, u32, {}}},
      NamedInput{"total", kX, Pass::kByReference});
  Tensor x = graph.inputs()[0];
  Tensor seed = graph.inputs()[1];
  Tensor total = graph.inputs()[2];
  Tensor y = graph.outputs()[0];
  H2dStream in = ir.h2d_stream(kX, "in");
  D2hStream out = ir.d2h_stream(kX, "out");
};

TEST(BatchSerialise, GivesEachStepASeedInEveryMode) {
  std::vector<std::string> texts;
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const int64_t steps : {4, 2}) {
      Noisy n;
      const BatchSerialised phase =
          batch_serialise(n.graph, {.steps = steps,
                                    .loads = {{n.x, n.in}},
                                    .store_streams = {{n.y, n.out}, {n.x, n.out}},
                                    .seed_input = n.seed,
                                    .io_mode = mode});
      Graph& g = n.ir.graph(phase.graph);
      EXPECT_EQ(g.name().substr(0, 33), "noisy__repeat_graph_subgraph(1)");
      ASSERT_EQ(g.inputs().size(), 3u);
      EXPECT_EQ(g.inputs()[0].name(), "batch_serial_loop_index");
      EXPECT_EQ(g.inputs()[1].name(), "batch_serial_random_seed");
      EXPECT_EQ(g.inputs()[2].name(), "total");
      EXPECT_EQ(g.info(g.inputs()[2]).pass, Pass::kByReference);
      EXPECT_TRUE(g.outputs().empty());
      const Tensor total = n.main.variable(HostTensor(kX));
      call_phase(n.main, phase, 0, {{n.total, total}},
                 n.main.constant(HostTensor::of<uint32_t>({2}, u32, {3, 4})));
      Interpreter run(n.ir);
      std::vector<HostTensor> feed;
      for (int64_t s = 0; s < steps; ++s)
        feed.push_back(
            HostTensor::of<float>({2, 3}, f32, std::vector<float>(6, static_cast<float>(10 * s))));
      const Collected sent = run.run({{n.in, HostTensor::stack(feed)}});
      std::string text = bits(run.read(total));
      ASSERT_EQ(sent.entries(n.out).size(), static_cast<size_t>(2 * steps));
      for (const HostTensor& t : sent.entries(n.out)) text += bits(t);
      EXPECT_NE(bits(sent.entries(n.out)[1]), bits(sent.entries(n.out)[3]));
      texts.push_back(std::move(text));
    }
  }
  for (size_t i = 2; i < texts.size(); ++i) EXPECT_EQ(texts[i], texts[i - 2]);
}

// The values are exact: running = running / 2 + y / 4 with y = 2·x, micro-batches ascending.
TEST(BatchSerialise, UpdatesAVariableOnceForEachMicroBatchInEveryMode) {
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const int64_t steps : {1, 2, 5}) {
      Ir ir;
      Graph& main = ir.main_graph();
      Graph& doubles = ir.create_graph(
          "doubles", [](Graph&, Tensor x) { return x * 2.0; }, NamedInput{"x", kX});
      Graph& other = ir.create_graph(
          "other", [](Graph&, Tensor x) { return x * 3.0; }, NamedInput{"x", kX});
      const H2dStream in = ir.h2d_stream(kX, "in");
      const Tensor y = doubles.outputs()[0];
      const auto average = [](const Tensor& running, const Tensor& value) {
        ops::scaled_add_(running, value, 0.5, 0.25);
      };
      const BatchSerialised phase = batch_serialise(
          doubles, {.steps = steps,
                    .loads = {{doubles.inputs()[0], in}},
                    .updates = {{.value = other.outputs()[0], .name = "ignored", .spec = kX},
                                {.value = y, .name = "r", .spec = kX, .apply = average}},
                    .io_mode = mode});
      Graph& g = ir.graph(phase.graph);
      ASSERT_EQ(phase.updated.size(), 1u);
      EXPECT_EQ(phase.updated[0].first, "r");
      EXPECT_EQ(phase.updated[0].second, g.inputs()[1]);
      EXPECT_EQ(g.info(g.inputs()[1]).pass, Pass::kByReference);
      const Tensor running = main.variable(HostTensor(kX));
      ops::call(main, g, {main.scalar(0.0, i32), running});
      verify(ir);
      Interpreter run(ir);
      std::vector<HostTensor> feed;
      float expected = 0;
      for (int64_t s = 0; s < steps; ++s) {
        const auto x = static_cast<float>(s + 1);
        feed.push_back(HostTensor::of<float>({2, 3}, f32, std::vector<float>(6, x)));
        expected = expected / 2 + x / 2;
      }
      run.run({{in, HostTensor::stack(feed)}});
      for (const double v : run.read(running).to_doubles()) EXPECT_EQ(v, double{expected});
    }
  }
}

TEST(BatchSerialise, BuffersGetTheEntriesThatTheirRowsNeed) {
  const RowOffset::Function same = [](const Tensor& row) { return row; };
  const std::vector<std::pair<RowOffset, int64_t>> cases{
      {0, 3 * 4}, {2, 3 * 6}, {-1, 3 * 3}, {RowOffset::first(), 3}, {same, 3 * 4}};
  for (const auto& [row, entries] : cases) {
    Noisy n;
    const RemoteBuffer buffer = n.ir.remote_buffer(kX);
    const BatchSerialised phase =
        batch_serialise(n.graph, {.steps = 3,
                                  .loads = {{n.x, BatchHandle{buffer, row}}},
                                  .store_buffers = {{n.x, BatchHandle{buffer, 0}}},
                                  .rows = 4});
    EXPECT_EQ(n.ir.remote_entries(buffer), entries);
    // A tensor that is loaded from a buffer is listed as stored there.
    ASSERT_EQ(phase.stored.size(), 1u);
    EXPECT_EQ(phase.stored[0].second.buffer, buffer);
    ASSERT_EQ(phase.inputs.size(), 2u);
    EXPECT_EQ(phase.inputs[0].first, n.seed) << "no seed input: an input like any other";
  }
}

TEST(BatchSerialise, SaysWhyItDoesNotOverlap) {
  Noisy n;
  BatchSerialiseOptions options{.steps = 1,
                                .loads = {{n.x, n.in}},
                                .store_streams = {{n.y, n.out}},
                                .io_mode = IoMode::kIoOverlapped};
  BatchSerialised phase = batch_serialise(n.graph, options);
  EXPECT_EQ(phase.io_mode, IoMode::kIo);
  EXPECT_NE(
      phase.note.find(
          "graph noisy_subgraph(0): io_overlapped is not possible: it requires at least 2 steps"),
      std::string::npos)
      << phase.note;
  Graph& loads = n.ir.create_graph(
      "loads", [&](Graph& g, Tensor x) { return x + g.host_load(n.in); }, NamedInput{"x", kX});
  options = {.steps = 4,
             .loads = {{loads.inputs()[0], n.in}},
             .store_streams = {{loads.outputs()[0], n.out}},
             .io_mode = IoMode::kIoOverlapped};
  phase = batch_serialise(loads, options);
  EXPECT_EQ(phase.io_mode, IoMode::kIo);
  EXPECT_NE(phase.note.find("the graph itself uses stream 'in'"), std::string::npos) << phase.note;
}

TEST(BatchSerialise, Refusals) {
  Noisy n;
  const RemoteBuffer small = n.ir.remote_buffer(f32_spec({2}));
  const BatchHandle wrong{small, 0};
  Graph& plain = n.ir.create_graph(
      "plain", [](Graph&, Tensor x) { return x * x; }, NamedInput{"x", kX});
  const GradGraphInfo info = autodiff(plain);
  const std::vector<std::pair<std::function<void()>, std::string>> cases{
      {[&] { batch_serialise(n.graph, {.steps = 0}); }, "steps must be at least 1, got 0"},
      {[&] { batch_serialise(n.graph, {.rows = 0}); }, "rows must be at least 1, got 0"},
      {[&] {
         batch_serialise(n.graph, {.loads = {{n.y, n.in}}});
       },
       "a tensor in loads must be an input, got '"},
      {[&] {
         batch_serialise(n.graph, {.loads = {{n.x, wrong}}});
       },
       "tensor 'x' ((2, 3) float32) does not match buffer 1 ((2,) float32)"},
      {[&] { batch_serialise(n.graph, {.updates = {{.value = n.x, .name = "r", .spec = kX}}}); },
       "the value of update 'r' must be an output, got 'x'"},
      {[&] {
         batch_serialise(n.graph, {.loads = {{n.seed, n.in}}});
       },
       "input 'seed' is (2,) uint32, stream 'in' carries (2, 3) float32"},
      {[&] {
         batch_serialise(n.graph, {.store_buffers = {{n.y, wrong}}});
       },
       "does not match buffer 1"},
      {[&] { batch_serialise(n.graph, {.seed_input = n.x}); },
       "seed_input must be a (2,) uint32 input of the graph, got 'x' ((2, 3) float32)"},
      {[&] {
         const H2dStream seeds = n.ir.h2d_stream(n.seed.spec(), "seeds");
         batch_serialise(n.graph, {.loads = {{n.seed, seeds}}, .seed_input = n.seed});
       },
       "seed_input 'seed' cannot also be in loads"},
      {[&] {
         const RemoteBuffer xs = n.ir.remote_buffer(kX);
         batch_serialise(n.graph, {.loads = {{n.x, BatchHandle{xs, -1}}}});
       },
       "the row offset must be at least 0 for 1 rows, got -1"},
      {[&] {
         const RemoteBuffer xs = n.ir.remote_buffer(kX);
         const RowOffset::Function bad = [](const Tensor&) { return Tensor(); };
         batch_serialise(n.graph, {.loads = {{n.x, BatchHandle{xs, bad}}}});
       },
       "the function of a RowOffset must return a scalar int32, got an empty handle"},
      {[&] { batch_serialise_fwd_and_grad(info, {}, {}); }, "(input 'Gradient___mul_"},
      {[&] { batch_serial_buffer(n.x, 0); },
       "batch_serial_buffer for 'x': steps and rows must be at least 1, got 0 and 1"},
  };
  for (const auto& [make, text] : cases) {
    const std::string error = usage_error(make);
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
  }
}

}  // namespace
}  // namespace sluice::transforms
