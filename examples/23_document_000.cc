/// Lesson 23: document 000 by hand. An object holds the graphs of a layer, and seven phases call
/// them. The losses have the bits of lesson 10. The arguments are the folder of the digits and,
/// optionally, a number of calls, after which the training ends.
#include <fmt/core.h>

#include <sluice/nn/batch_serialise.h>
#include <sluice/sluice.h>
#include <algorithm>
#include <map>
#include <optional>
#include <string>

using namespace sluice;
using nn::GraphWithNamedArgs;
using nn::NamedTensors;

namespace {

constexpr int64_t kMicroBatch = 8, kAccumulate = 4, kReplicas = 2, kWidth = 512, kInner = 2;
const nn::ShardRule kShards{.threshold = 512};

nn::Linear linear(int64_t out) { return nn::Linear(out, nn::Bias::kAdd, nn::WeightInit::kNormal); }

struct Hidden : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return ops::gelu(linear(kWidth).build(b, x)); }
};

// The last layer: forward, loss and gradient in one graph. Returns the gradient of x and the loss.
struct LastLayer : nn::Module {
  Tensors build(nn::Builder& b, Tensor x, Tensor labels) const {
    const auto [weights, forward] = nn::create_graph(b.ir(), linear(10), x);
    const auto [sums, backward] = nn::autodiff_with_accumulation(
        forward, forward.args().tensors(), {.grads_required = {forward.graph().inputs()[0]}});
    const CallSiteInfo call =
        forward.bind(b.add_variable_inputs("weights", weights)).call_with_info(x);
    const auto [loss, gradient] = ops::cross_entropy_with_grad(call.output(0), labels);
    const TensorMap activations = backward.grad_graph_info().inputs_dict(call);
    const nn::BoundGraph bound = backward.bind(b.add_variable_inputs("sums", sums));
    return {bound.call(gradient, activations)[0], loss};
  }
};

// Adam without bias correction. The state of a shard is a shard.
struct Adam : nn::Module {
  void build(nn::Builder& b, Tensor variable, Tensor grad) const {
    const auto state = [&](const char* name, DType dtype) {
      constexpr Pass kPass = Pass::kByReference;
      if (const Shape whole = variable.meta_shape(); !whole.empty())
        return b.add_replica_sharded_variable_input(name, nn::zeros(), whole, dtype, kPass);
      return b.add_variable_input(name, nn::zeros(), variable.shape(), dtype, kPass);
    };
    const Tensor m = ops::accumulate_moving_average_(state("first_order", f16), grad, 0.9);
    const Tensor v =
        ops::accumulate_moving_average_square_(state("second_order", f32), grad, 0.999);
    ops::scaled_add_(variable, ops::adam_updater(m, v, {.epsilon = 1e-5}), 1.0, -1e-3);
  }
};

// The graphs that equal layers share, and the remote buffers, which have a row for each layer.
struct Graphs {
  // `all` has the factories "weights" and those of accumulators, "sums". Without `first`, the graph
  // `second` runs forward and backward.
  Graphs(Ir program, int64_t layers, const nn::NamedVariableFactories& all,
         std::optional<GraphWithNamedArgs> first, GraphWithNamedArgs second)
      : ir(program), rows(layers), factories(all), forward(first), backward(second) {}

  void init(Graph& main, int64_t row, const std::string& layer) const {
    for (const char* tree : {"weights", "state"})
      factories.tree(tree).init_remote(main, buffers.tree(tree), row, {.prefix = layer});
  }
  // Replaces the graphs of one micro-batch by phases, which run all micro-batches.
  void serialise(nn::BatchSerialiseOptions o) {
    o.steps = kAccumulate;
    o.rows = rows;
    if (!forward) {
      backward = nn::batch_serialise(backward, o).graph;
      return;
    }
    const auto [f, b] = nn::batch_serialise_fwd_and_grad(*forward, backward, forward->args(), o);
    forward = f.graph;
    backward = b.graph;
  }
  void forward_phase(Graph& main, int64_t row) const {
    const NamedTensors shards = call(load_weights, {}, &main, row);
    forward->bind(call(gather, shards, &main)).call(&main, row);
  }
  void backward_phase(Graph& main, int64_t row) const {
    const NamedTensors shards = call(load, {}, &main, row);
    const NamedTensors sums = factories.tree("sums").init_zero(main);
    const NamedTensors whole = call(gather, shards.tree("weights"), &main);
    backward.bind(whole).bind(sums).call(&main, row);
    const NamedTensors means = call(reduce, sums.tree("accum"), &main);
    for (const auto& [name, update] : updates)
      update.bind(shards.tree("state." + name)).call(shards["weights." + name], means[name]);
    store.bind(shards).call(&main, row);
  }

  using Named = std::pair<GraphWithNamedArgs, std::vector<std::string>>;

  template <typename... Args>
  static NamedTensors call(const Named& named, const NamedTensors& given, const Args&... args) {
    return NamedTensors::pack(named.second, named.first.bind(given).call(args...));
  }
  // Creates the update of each weight, and the factories of its state.
  std::map<std::string, GraphWithNamedArgs> make_updates() {
    std::map<std::string, GraphWithNamedArgs> made;
    factories.tree("weights").for_each([&](const std::string& name, const auto& weight) {
      const TensorSpec shard = nn::replica_sharded_spec(ir, weight.spec(), kShards);
      const NamedInput variable{"variable", shard, Pass::kByReference};
      const auto [state, update] = nn::create_graph(ir, Adam(), variable, shard);
      factories.node("state").insert(name, state);
      made.emplace(name, update);
    });
    return made;
  }
  nn::NamedRemoteBuffers make_buffers() const {
    nn::NamedRemoteBuffers made;
    for (const char* tree : {"weights", "state"})
      made.insert(tree,
                  nn::named_variable_buffers(ir, factories.tree(tree), rows, kShards.threshold));
    return made;
  }

  // Members are initialised in this order.
  Ir ir;
  int64_t rows;
  nn::NamedVariableFactories factories;
  std::optional<GraphWithNamedArgs> forward;
  GraphWithNamedArgs backward;
  std::map<std::string, GraphWithNamedArgs> updates = make_updates();
  nn::NamedRemoteBuffers buffers = make_buffers();
  Named load_weights = nn::load_remote_graph(ir, buffers.tree("weights"), rows);
  Named load = nn::load_remote_graph(ir, buffers, rows);
  GraphWithNamedArgs store = nn::store_remote_graph(ir, buffers, rows);
  Named gather = nn::all_gather_replica_sharded_graph(
      ir, NamedTensors::pack(load_weights.second, load_weights.first.graph().outputs()));
  Named reduce = nn::reduce_replica_sharded_graph(ir, backward.args().tree("accum"),
                                                  ops::CollectiveOp::kMean, kShards);
};

// A layer with GELU.
Graphs hidden(Ir ir, int64_t rows, const TensorSpec& x, bool returns_dx) {
  const auto [weights, forward] = nn::create_graph(ir, Hidden(), x);
  Tensors required;
  if (returns_dx) required = {forward.graph().inputs()[0]};
  const auto [sums, backward] = nn::autodiff_with_accumulation(forward, forward.args().tensors(),
                                                               {.grads_required = required});
  nn::NamedVariableFactories all;
  all.insert("weights", weights);
  all.insert("sums", sums);
  return Graphs(ir, rows, all, forward, backward);
}

// The last layer. Names of its arguments are those of the other layers.
Graphs last_layer(Ir ir, const TensorSpec& x, const TensorSpec& labels) {
  const auto [all, graph] = nn::create_graph(ir, LastLayer(), x, labels);
  NamedTensors args = graph.args().tree("weights");
  args.update(graph.args().tree("sums"));
  return Graphs(ir, 1, all, std::nullopt, GraphWithNamedArgs(graph.graph(), args));
}

// Adds the seven phases of an update to the main graph.
void add_step(Ir ir, const H2dStream& images, const H2dStream& labels, const D2hStream& loss) {
  const TensorSpec inner{{kMicroBatch, kWidth}, f32};
  Graphs fc1 = hidden(ir, 1, images.spec, false);
  Graphs fc23 = hidden(ir, kInner, inner, true);
  Graphs fc4 = last_layer(ir, inner, labels.spec);

  // Row 0 of x holds the input of fc2, row 1 that of fc3, row 2 that of fc4; dx their gradients.
  const auto in = [](const GraphWithNamedArgs& g, size_t i = 0) { return g.graph().inputs()[i]; };
  const auto out = [](const GraphWithNamedArgs& g, size_t i = 0) { return g.graph().outputs()[i]; };
  const RemoteBuffer x = nn::batch_serial_buffer(in(*fc23.forward), kAccumulate, kInner + 1);
  const RemoteBuffer dx = nn::batch_serial_buffer(in(fc23.backward), kAccumulate, kInner + 1);
  const auto row = [](const RemoteBuffer& buffer, int64_t r) { return nn::BatchHandle{buffer, r}; };
  fc1.serialise({.loads = {{in(*fc1.forward), images}, {in(fc1.backward), row(dx, 0)}},
                 .store_buffers = {{out(*fc1.forward), row(x, 0)}}});
  // Rows of fc2. Those of fc3 are one higher.
  fc23.serialise(
      {.loads = {{in(*fc23.forward), row(x, 0)}, {in(fc23.backward), row(dx, 1)}},
       .store_buffers = {{out(*fc23.forward), row(x, 1)}, {out(fc23.backward), row(dx, 0)}}});
  fc4.serialise({.loads = {{in(fc4.backward), row(x, 2)}, {in(fc4.backward, 1), labels}},
                 .store_streams = {{out(fc4.backward, 1), loss}},
                 .store_buffers = {{out(fc4.backward), row(dx, 2)}}});

  Graph& main = ir.main_graph();
  fc1.init(main, 0, "fc1");
  fc23.init(main, 0, "fc2");
  fc23.init(main, 1, "fc3");
  fc4.init(main, 0, "fc4");
  fc1.forward_phase(main, 0);
  fc23.forward_phase(main, 0);
  fc23.forward_phase(main, 1);
  fc4.backward_phase(main, 0);  // It runs forward, too.
  fc23.backward_phase(main, 1);
  fc23.backward_phase(main, 0);
  fc1.backward_phase(main, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const data::Samples digits = data::load_digits(data::Split::kTrain, argc > 1 ? argv[1] : "");
  Ir ir(kReplicas);
  const H2dStream images = ir.h2d_stream({{kMicroBatch, 28 * 28}, f32}, "images");
  const H2dStream labels = ir.h2d_stream({{kMicroBatch}, i32}, "labels");
  const D2hStream loss = ir.d2h_stream({{}, f32}, "loss");
  add_step(ir, images, labels, loss);
  Session session(ir, {.device = cpu_device()});

  // An item has the samples of a call, in the order of micro-batches, then replicas.
  data::BatchLoader loader(data::from_samples(digits),
                           {.batch = kMicroBatch * kAccumulate * kReplicas});
  const int64_t items = *loader.items();
  const int64_t calls = argc > 2 ? std::min<int64_t>(std::stoll(argv[2]), items) : items;
  double mean = 0;
  for (int64_t i = 0; i < calls; ++i) {
    const data::Element& item = *loader.next();
    const HostTensors results = session.run(
        {{images, item["input"].reshaped({kAccumulate, kReplicas, kMicroBatch, 28 * 28})},
         {labels, item["labels"].reshaped({kAccumulate, kReplicas, kMicroBatch})}});
    // As in train::fit, each replica adds its micro-batches in float32.
    float sums[kReplicas] = {};
    for (size_t k = 0; const float l : results[loss].as<float>()) sums[k++ % kReplicas] += l;
    mean = (double{sums[0]} + double{sums[1]}) / (kAccumulate * kReplicas);
  }
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", calls, digits.source, mean);
  fmt::print("bits of the last loss: {:a}\n", mean);
}
