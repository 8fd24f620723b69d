/// Lesson 22: document 003's training by hand. Four replicas train four layers. Adam's state is in
/// remote memory, where each replica has shards of it. All losses and variables have the bits of
/// train::fit with the options of `sluice train mnist-rts`. The argument is the folder of the
/// digits.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <map>
#include <string>
#include <vector>

using namespace sluice;
using nn::NamedTensors;

namespace {

constexpr int64_t kMicroBatch = 8, kAccumulate = 8, kReplicas = 4, kTestBatch = 80;
constexpr int64_t kThreshold = 512;  // Tensors with fewer elements stay whole.
constexpr double kRate = 1e-3;

// Four linear layers whose first weights are N(0, 0.02), with GELU between them.
class Net : public nn::Module {
 public:
  Net() {
    for (const int64_t out : {512, 512, 512, 10})
      fc_.add(out, nn::Bias::kAdd, nn::WeightInit::kNormal);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (size_t i = 0; i < fc_.size(); ++i) x = fc_[i](b, i == 0 ? x : ops::gelu(x));
    return x;
  }

 private:
  nn::Children<nn::Linear> fc_{*this, "fc"};
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
    ops::scaled_add_(variable, ops::adam_updater(m, v, {.epsilon = 1e-5}), 1.0, -kRate);
  }
  std::string cache_key() const { return ""; }
};

// Updates a variable that is equal on all replicas. `gradient` is a shard or whole.
void remote_step(nn::GraphCache& cache, const std::string& name, Tensor variable, Tensor gradient) {
  Graph& main = variable.graph();
  const Ir ir = main.ir();
  const bool sharded = !gradient.meta_shape().empty();
  const Tensor own = sharded ? ops::replica_sharded_slice(variable) : variable;
  const NamedInput input{"variable", own.spec(), Pass::kByReference};
  const auto& [factories, adam] = cache.create_graph(ir, Adam(), input, gradient.spec());
  const nn::NamedRemoteBuffers buffers = nn::named_variable_buffers(ir, factories);
  factories.init_remote(main, buffers, 0, {.prefix = name});

  const auto [load, names] = nn::load_remote_graph(ir, buffers);
  const NamedTensors state = NamedTensors::pack(names, load.call(&main, 0));
  adam.bind(state).call(own, gradient);
  nn::store_remote_graph(ir, buffers).bind(state).call(&main, 0);
  if (sharded) ops::copy_var_update_(variable, nn::gather_replica_sharded_tensor(own));
}

// Tests the variables of a session with a program for one device.
double accuracy(const Session& trained, const NamedTensors& variables, const data::Samples& tests) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream images = ir.h2d_stream({{kTestBatch, 28 * 28}, f32}, "images");
  const auto [factories, net] = nn::create_graph(ir, Net(), images.spec);
  const NamedTensors own = factories.init(main);
  const D2hStream scores = main.host_store(net.bind(own).call(main.host_load(images))[0], "scores");
  Session session(ir, {.device = cpu_device()});
  for (const auto& [from, to] : variables.to_mapping(own)) session.write(to, trained.read(from));
  data::BatchLoader loader(data::from_samples(tests), {.batch = kTestBatch});
  double sum = 0;
  while (const data::Element* item = loader.next())
    sum += train::accuracy(session.run({{images, (*item)["input"]}})[scores], (*item)["labels"]);
  return sum / static_cast<double>(*loader.items());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const data::Samples digits = data::load_digits(data::Split::kTrain, folder);
  Ir ir(kReplicas);
  Graph& main = ir.main_graph();
  const H2dStream images = ir.h2d_stream({{kMicroBatch, 28 * 28}, f32}, "images");
  const H2dStream labels = ir.h2d_stream({{kMicroBatch}, i32}, "labels");
  const D2hStream losses = ir.d2h_stream({{}, f32}, "losses");
  const auto [factories, forward] = nn::create_graph(ir, Net(), images.spec);
  const auto [sum_factories, backward] =
      nn::autodiff_with_accumulation(forward, forward.args().tensors());
  const NamedTensors variables = factories.init(main);
  const NamedTensors sums = sum_factories.init_zero(main);

  // Each replica computes the mean gradient of its micro-batches.
  for (int64_t i = 0; i < kAccumulate; ++i) {
    const CallSiteInfo call = forward.bind(variables).call_with_info(main.host_load(images));
    const auto [loss, gradient] =
        ops::cross_entropy_with_grad(call.output(0), main.host_load(labels));
    backward.bind(sums).call(gradient, backward.grad_graph_info().inputs_dict(call));
    main.host_store(losses, loss);
  }
  // Each replica receives its shards of the means over replicas.
  const auto [reduce, names] = nn::reduce_replica_sharded_graph(
      ir, sums.tree("accum"), ops::CollectiveOp::kMean, {.threshold = kThreshold});
  const NamedTensors means = NamedTensors::pack(names, reduce.bind(sums.tree("accum")).call(&main));
  nn::GraphCache cache;  // Variables of equal specs share an update graph.
  variables.for_each([&](const std::string& name, const Tensor& variable) {
    remote_step(cache, name, variable, means[name]);
  });

  // An item has the samples of a call, in the order of micro-batches, then replicas.
  Session session(ir, {.device = cpu_device()});
  data::BatchLoader loader(data::from_samples(digits),
                           {.batch = kMicroBatch * kAccumulate * kReplicas});
  std::vector<float> all;
  while (const data::Element* item = loader.next()) {
    const HostTensors results = session.run(
        {{images, (*item)["input"].reshaped({kAccumulate, kReplicas, kMicroBatch, 28 * 28})},
         {labels, (*item)["labels"].reshaped({kAccumulate, kReplicas, kMicroBatch})}});
    const auto call = results[losses].as<float>();
    all.insert(all.end(), call.begin(), call.end());
  }
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", *loader.items(), digits.source,
             all.back());
  const double percent =
      accuracy(session, variables, data::load_digits(data::Split::kTest, folder));
  fmt::print("Accuracy on test set: {:.2f}%\n", percent);

  // A model with these options has the same bits.
  train::TrainingModel model = train::training_model(
      train::classifier(Net(), {{kMicroBatch, 28 * 28}, f32}),
      {.accumulate = kAccumulate,
       .replicas = kReplicas,
       .output = train::Output::all(),
       .locations = {.optimizer = train::Location::kRemote, .min_elements_sharded = kThreshold},
       .learning_rate = kRate},
      nn::Optimizer::adam_f16());
  const train::FitResult fit = train::fit(model, data::from_samples(digits));
  std::map<std::string, HostTensor> values;
  session.each_variable(
      [&](const std::string& path, HostTensor value) { values.emplace(path, std::move(value)); });
  size_t equal = 0;
  model.session().each_variable([&](const std::string& path, const HostTensor& value) {
    if (value.same_bits(values.at(path))) ++equal;
  });
  const bool same = fit.losses == all && equal == values.size();
  fmt::print("{} losses and {} variables, the bits of train::fit: {}\n", all.size(), values.size(),
             same ? "yes" : "no");
  return same && percent >= 95.0 ? 0 : 1;
}
