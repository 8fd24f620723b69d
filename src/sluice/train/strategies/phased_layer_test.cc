#include "sluice/train/strategies/phased_layer.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/executable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/visit_step.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/losses.h"
#include "sluice/report/traffic.h"
#include "sluice/session/session.h"

namespace sluice::train {
namespace {

struct Layer : nn::Module {
  explicit Layer(int64_t f) : features(f) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    return ops::gelu(nn::Linear(features).build(b, x));
  }
  int64_t features;
};

struct LayerOutput : nn::Module {
  Tensors build(nn::Builder& b, Tensor x, Tensor labels) const {
    const auto [factories, forward] = nn::create_graph(b.ir(), nn::Linear(10), x.spec());
    const auto [grad_factories, backward] = nn::autodiff_with_accumulation(
        forward, forward.args().tensors(), {.grads_required = {forward.graph().inputs()[0]}});
    const auto weights = b.add_variable_inputs("fwd", factories);
    const CallSiteInfo call = forward.bind(weights).call_with_info(x);
    const auto [loss, dy] = ops::cross_entropy_with_grad(call.output(0), labels);
    const auto accumulators = b.add_variable_inputs("bwd", grad_factories);
    return {backward.bind(accumulators).call(dy, backward.grad_graph_info().inputs_dict(call))[0],
            loss};
  }
};

// Number of entries by the buffer's spec and the shape of the whole tensor.
std::multimap<std::string, int64_t> buffers(const Ir& ir, int32_t from = 1) {
  std::multimap<std::string, int64_t> all;
  for (int32_t b = from; b <= ir.remote_buffer_count(); ++b) {
    const RemoteBufferInfo& info = ir.remote_buffer_info(b);
    std::string text = to_string(TensorSpec{info.spec.shape, info.spec.dtype, {}});
    if (!info.spec.meta_shape.empty()) text += " of " + to_string(info.spec.meta_shape);
    all.emplace(text, info.entries);
  }
  return all;
}

// Weights and state in remote memory, as shards.
constexpr TensorLocations kSharded{
    .optimizer = Location::kRemote, .weights = Location::kRemote, .min_elements_sharded = 512};

using Entries = std::multimap<std::string, int64_t>;

// Counts the collectives in one run of a function, by operator.
void count_collectives(const exe::Executable& e, int32_t function, int64_t times,
                       std::map<std::string, int64_t>& counts) {
  for (const exe::Step& step : e.functions[static_cast<size_t>(function)].steps) {
    if (const auto* c = std::get_if<exe::Collective>(&step.body)) counts[c->op] += times;
    const auto* loop = std::get_if<exe::Loop>(&step.body);
    exe::for_each_call(step, [&](const exe::Call& c) {
      count_collectives(e, c.function, loop == nullptr ? times : times * loop->trips, counts);
    });
  }
}

// Checks the remote traffic of each replica in one run of document 000's program.
void expect_traffic_of_the_document(const exe::Executable& executable) {
  const exe::Program& program = executable.program("main");
  for (const auto& s : program.streams) EXPECT_EQ(s.entries, 4);
  int64_t loads = 0, loaded = 0, stores = 0, stored = 0;
  for (const report::Traffic& t : report::TrafficCounter(executable).of(program)) {
    const bool in = t.kind == exe::TransferKind::kRemoteLoad;
    if (!in && t.kind != exe::TransferKind::kRemoteStore) continue;
    (in ? loads : stores) += t.transfers;
    (in ? loaded : stored) += t.bytes;
  }
  EXPECT_EQ(loads, 78);
  EXPECT_EQ(loaded, 7337572);
  EXPECT_EQ(stores, 64);
  EXPECT_EQ(stored, 5352036);
  std::map<std::string, int64_t> collectives;
  count_collectives(executable, program.starts[0].function, 1, collectives);
  EXPECT_EQ(collectives, (std::map<std::string, int64_t>{{"ReplicatedAllGather", 13},
                                                         {"ReplicatedReduceScatter", 7},
                                                         {"ReplicatedAllReduce", 1}}));
}

// The buffers of document 000's program are listed in appendix B of the reference's specification.
TEST(PhasedLayer, SevenPhasesHaveTheBuffersAndTheTrafficOfTheDocument) {
  Ir ir(2);
  const TensorSpec image = f32_spec({8, 784});
  const TensorSpec inner_spec = f32_spec({8, 512});
  const H2dStream images = ir.h2d_stream(image, "image");
  const H2dStream labels = ir.h2d_stream(i32_spec({8}), "labels");
  const D2hStream losses = ir.d2h_stream(f32_spec({}), "loss");
  nn::Optimizer adam = nn::Optimizer::adam_f16();
  auto [factories1, graph1] = nn::create_graph(ir, Layer(512), image);
  auto [factories2, graph2] = nn::create_graph(ir, Layer(512), inner_spec);
  auto [factories4, graph4] = nn::create_graph(ir, LayerOutput(), inner_spec, labels.spec);
  PhasedLayer fc1(factories1, graph1, adam,
                  {.input_gradient = InputGradient::kNo, .locations = kSharded});
  EXPECT_EQ(buffers(ir), (Entries{{"(200704,) float32 of (784, 512)", 1},
                                  {"(200704,) float16 of (784, 512)", 1},
                                  {"(200704,) float32 of (784, 512)", 1},
                                  {"(256,) float32 of (512,)", 1},
                                  {"(256,) float16 of (512,)", 1},
                                  {"(256,) float32 of (512,)", 1}}));
  int32_t next = ir.remote_buffer_count() + 1;
  PhasedLayer inner(factories2, graph2, adam, {.rows = 2, .locations = kSharded});
  EXPECT_EQ(buffers(ir, next), (Entries{{"(131072,) float32 of (512, 512)", 2},
                                        {"(131072,) float16 of (512, 512)", 2},
                                        {"(131072,) float32 of (512, 512)", 2},
                                        {"(256,) float32 of (512,)", 2},
                                        {"(256,) float16 of (512,)", 2},
                                        {"(256,) float32 of (512,)", 2}}));
  next = ir.remote_buffer_count() + 1;
  auto fc4 = PhasedLayer::joint(factories4, graph4, adam, {.locations = kSharded});
  EXPECT_EQ(buffers(ir, next), (Entries{{"(2560,) float32 of (512, 10)", 1},
                                        {"(2560,) float16 of (512, 10)", 1},
                                        {"(2560,) float32 of (512, 10)", 1},
                                        {"(10,) float32", 1},
                                        {"(10,) float16", 1},
                                        {"(10,) float32", 1}}));
  const RemoteBuffer x = ir.remote_buffer(inner_spec);
  const RemoteBuffer dx = ir.remote_buffer(inner_spec);
  const auto in = [](const nn::GraphWithNamedArgs& g, size_t i) { return g.graph().inputs()[i]; };
  const auto out = [](const nn::GraphWithNamedArgs& g, size_t i) { return g.graph().outputs()[i]; };
  next = ir.remote_buffer_count() + 1;
  fc1.serialise(
      {.steps = 4,
       .loads = {{in(fc1.forward(), 0), images}, {in(fc1.backward(), 0), nn::BatchHandle{dx, 0}}},
       .store_buffers = {{out(fc1.forward(), 0), nn::BatchHandle{x, 0}}}});
  EXPECT_EQ(buffers(ir, next), (Entries{{"(8, 784) float32", 4}, {"(8, 512) float32", 4}}))
      << "the image, for it came from a stream, and what goes into gelu";
  EXPECT_EQ(ir.remote_entries(x), 4);
  next = ir.remote_buffer_count() + 1;
  inner.serialise({.steps = 4,
                   .loads = {{in(inner.forward(), 0), nn::BatchHandle{x, 0}},
                             {in(inner.backward(), 0), nn::BatchHandle{dx, 1}}},
                   .store_buffers = {{out(inner.forward(), 0), nn::BatchHandle{x, 1}},
                                     {out(inner.backward(), 0), nn::BatchHandle{dx, 0}}}});
  EXPECT_EQ(buffers(ir, next), (Entries{{"(8, 512) float32", 8}})) << "a row for each layer";
  next = ir.remote_buffer_count() + 1;
  fc4.serialise(
      {.steps = 4,
       .loads = {{in(fc4.backward(), 0), nn::BatchHandle{x, 2}}, {in(fc4.backward(), 1), labels}},
       .store_streams = {{out(fc4.backward(), 1), losses}},
       .store_buffers = {{out(fc4.backward(), 0), nn::BatchHandle{dx, 2}}}});
  EXPECT_EQ(ir.remote_buffer_count() + 1, next) << "the output layer keeps nothing";
  EXPECT_EQ(ir.remote_entries(x), 12);
  EXPECT_EQ(ir.remote_entries(dx), 12);

  Graph& main = ir.main_graph();
  fc1.init(main, 0, {.prefix = "fc1"});
  inner.init(main, 0, {.prefix = "fc2"});
  inner.init(main, 1, {.prefix = "fc3"});
  fc4.init(main, 0, {.prefix = "fc4"});
  const Tensor step_size = main.scalar(-1e-3, f32);
  fc1.forward_phase(main, 0);
  for (const int64_t row : {0, 1}) inner.forward_phase(main, row);
  fc4.backward_phase(main, 0, step_size);
  for (const int64_t row : {1, 0}) inner.backward_phase(main, row, step_size);
  fc1.backward_phase(main, 0, step_size);
  const Session session(ir, {.device = cpu_device()});  // Session verifies the plan.
  expect_traffic_of_the_document(session.executable());
}

struct Normalized : nn::Module {
  explicit Normalized(int64_t f) : fc(*this, "fc", f) {}
  Tensor build(nn::Builder& b, Tensor x) const { return ops::gelu(norm(b, fc(b, x))); }
  nn::Child<nn::Linear> fc;
  nn::Child<nn::BatchNorm> norm{*this, "norm"};
};

struct NormalizedNet : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return fc4(b, fc3(b, fc2(b, fc1(b, x)))); }
  nn::Child<Normalized> fc1{*this, "fc1", 6}, fc2{*this, "fc2", 6}, fc3{*this, "fc3", 6},
      fc4{*this, "fc4", 3};
};

struct NormalizedOutput : nn::Module {
  Tensors build(nn::Builder& b, Tensor x, Tensor labels) const {
    const auto [factories, forward] = nn::create_graph(b.ir(), Normalized(3), x.spec());
    const auto [grad_factories, backward] = nn::autodiff_with_accumulation(
        forward, factories.select(forward.args(), nn::Role::kWeight).tensors(),
        {.grads_required = {forward.graph().inputs()[0]}});
    const auto variables = b.add_variable_inputs("fwd", factories);
    const CallSiteInfo call = forward.bind(variables).call_with_info(x);
    const auto [loss, dy] = ops::cross_entropy_with_grad(call.output(0), labels);
    const auto accumulators = b.add_variable_inputs("bwd", grad_factories);
    return {backward.bind(accumulators).call(dy, backward.grad_graph_info().inputs_dict(call))[0],
            loss};
  }
};

using Values = std::vector<std::pair<std::string, HostTensor>>;

// Trains for an update of three micro-batches and returns all variables.
Values after_an_update(const Ir& ir, const H2dStream& images, const H2dStream& labels,
                       const std::string& program) {
  constexpr int64_t kSteps = 3;
  const int replicas = ir.replication();
  HostTensor x({entries_shape(images.spec.shape, kSteps, replicas), f32});
  HostTensor y({entries_shape(labels.spec.shape, kSteps, replicas), i32});
  float next = 0;
  for (float& v : x.as<float>()) v = std::sin(next += 1.5f);
  for (int32_t& v : y.as<int32_t>()) v = static_cast<int32_t>(next += 1) % 3;
  Session session(ir, {.device = cpu_device(), .remote = "host"});
  session.run({{images, x}, {labels, y}}, program);
  Values values;
  session.each_variable(
      [&](const std::string& path, const HostTensor& value) { values.emplace_back(path, value); });
  return values;
}

// Graphs of nn::create_graph() write their running variables themselves. A layer of such graphs has
// the bits of a network's.
TEST(PhasedLayer, GraphsMayUpdateRunningVariables) {
  const TensorSpec spec = f32_spec({4, 6});
  for (const int replicas : {1, 2}) {
    for (const Location place : {Location::kDevice, Location::kRemote}) {
      const TensorLocations locations{.weights = place, .min_elements_sharded = 8};
      nn::Optimizer sgd = nn::Optimizer::sgd();
      Ir whole(replicas);
      const Training t =
          build_training(whole, classifier(NormalizedNet(), spec), sgd, {.accumulate = 3});
      const Values want = after_an_update(whole, t.fields[0], t.fields[1], "train");

      Ir ir(replicas);
      const H2dStream images = ir.h2d_stream(spec, "images");
      const H2dStream labels = ir.h2d_stream(i32_spec({4}), "labels");
      auto [factories, graph] = nn::create_graph(ir, Normalized(6), spec);
      auto [factories4, graph4] = nn::create_graph(ir, NormalizedOutput(), spec, labels.spec);
      PhasedLayer fc1(factories, graph, sgd,
                      {.input_gradient = InputGradient::kNo, .locations = locations});
      auto [factories2, graph2] = nn::create_graph(ir, Normalized(6), spec);
      PhasedLayer inner(factories2, graph2, sgd, {.rows = 2, .locations = locations});
      auto fc4 = PhasedLayer::joint(factories4, graph4, sgd, {.locations = locations});
      const RemoteBuffer x = ir.remote_buffer(spec);
      const RemoteBuffer dx = ir.remote_buffer(spec);
      const auto in = [](const nn::GraphWithNamedArgs& g) { return g.graph().inputs(); };
      const auto out = [](const nn::GraphWithNamedArgs& g) { return g.graph().outputs()[0]; };
      fc1.serialise({.steps = 3,
                     .loads = {{in(fc1.forward())[0], images},
                               {in(fc1.backward())[0], nn::BatchHandle{dx, 0}}},
                     .store_buffers = {{out(fc1.forward()), nn::BatchHandle{x, 0}}}});
      inner.serialise({.steps = 3,
                       .loads = {{in(inner.forward())[0], nn::BatchHandle{x, 0}},
                                 {in(inner.backward())[0], nn::BatchHandle{dx, 1}}},
                       .store_buffers = {{out(inner.forward()), nn::BatchHandle{x, 1}},
                                         {out(inner.backward()), nn::BatchHandle{dx, 0}}}});
      fc4.serialise({.steps = 3,
                     .loads = {{in(fc4.backward())[0], nn::BatchHandle{x, 2}},
                               {in(fc4.backward())[1], labels}},
                     .store_buffers = {{out(fc4.backward()), nn::BatchHandle{dx, 2}}}});
      Graph& main = ir.main_graph();
      fc1.init(main, 0, {.prefix = "fc1"});
      inner.init(main, 0, {.prefix = "fc2"});
      inner.init(main, 1, {.prefix = "fc3"});
      fc4.init(main, 0, {.prefix = "fc4"});
      const Tensor step_size = main.scalar(-0.05, f32);
      fc1.forward_phase(main, 0);
      for (const int64_t row : {0, 1}) inner.forward_phase(main, row);
      fc4.backward_phase(main, 0, step_size);
      for (const int64_t row : {1, 0}) inner.backward_phase(main, row, step_size);
      fc1.backward_phase(main, 0, step_size);
      const Values got = after_an_update(ir, images, labels, "main");
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[i].first, want[i].first);
        EXPECT_TRUE(got[i].second.same_bits(want[i].second)) << want[i].first;
      }
    }
  }
}

TEST(PhasedLayer, Refusals) {
  Ir ir;
  Graph& main = ir.main_graph();
  nn::Optimizer sgd = nn::Optimizer::sgd();
  auto [factories, graph] = nn::create_graph(ir, Layer(4), f32_spec({2, 4}));
  auto [factories4, graph4] = nn::create_graph(ir, LayerOutput(), f32_spec({2, 4}), i32_spec({2}));
  PhasedLayer layer(factories, graph, sgd, {.rows = 2});
  const auto joint = PhasedLayer::joint(factories4, graph4, sgd);
  const Tensor step_size = main.scalar(-1, f32);
  expect_refused({
      {"no rows", [&, f = factories, g = graph] { PhasedLayer(f, g, sgd, {.rows = 0}); },
       "phased layer: rows must be at least 1, got 0"},
      {"a row too many", [&] { layer.init(main, 2, {}); },
       "phased layer: row must be in [0, 2), got 2"},
      {"variables before they are made", [&] { layer.variables(0); },
       "phased layer: row must be in [0, 2) and have variables, got 0; call init() for it"},
      {"a forward graph of a joint layer", [&] { joint.forward(); },
       "phased layer: forward() requires a separate forward graph, got a joint layer"},
      {"a phase before it is made",
       [&] {
         layer.init(main, 0, {});
         layer.forward_phase(main, 0);
       },
       "phased layer: a forward phase requires serialise() on a layer that is not joint"},
      {"another", [&] { layer.backward_phase(main, 0, step_size); },
       "phased layer: a backward phase requires serialise()"},
  });
}

}  // namespace
}  // namespace sluice::train
