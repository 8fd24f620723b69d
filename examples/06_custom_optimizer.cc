/// Lesson 6: a custom optimizer is a module with state. Its graph updates one variable and is
/// called for each variable.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

// Adam without bias correction. It updates the variable in place.
class Adam : public nn::Module {
 public:
  void build(nn::Builder& b, Tensor variable, Tensor grad, Tensor step_size) const {
    const auto state = [&](const char* name) {
      return b.add_variable_input(name, nn::zeros(), variable.shape(), f32, Pass::kByReference);
    };
    Tensor first_order = state("first_order");
    Tensor second_order = state("second_order");
    first_order = ops::accumulate_moving_average_(first_order, grad, 0.9);
    second_order = ops::accumulate_moving_average_square_(second_order, grad, 0.999);
    const Tensor update = ops::adam_updater(first_order, second_order, {.epsilon = 1e-5});
    ops::scaled_add_(variable, update, 1.0, step_size);
  }
  std::string cache_key() const { return ""; }
};

int main() {
  Ir ir;
  Graph& main = ir.main_graph();
  H2dStream features = ir.h2d_stream({{8, 3}, f32, {}}, "features");
  H2dStream targets = ir.h2d_stream({{8, 1}, f32, {}}, "targets");
  Tensor x = main.host_load(features);
  auto [factories, net] = nn::create_graph(
      ir, nn::Sequential(nn::Linear(8), nn::Tanh(), nn::Linear(8), nn::Linear(1)), x);
  nn::NamedTensors vars = factories.init(main);
  nn::GraphWithNamedArgs backward = net.autodiff({.grads_required = net.args().tensors()});
  CallSiteInfo call = net.bind(vars).call_with_info(x);
  Tensor error = call.output(0) - main.host_load(targets);
  D2hStream loss = main.host_store(ops::mean(error * error), "loss");
  CallSiteInfo back =
      backward.call_with_info(error * 0.25, backward.grad_graph_info().inputs_dict(call));
  auto grads = backward.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(call, back);

  // Variables of one spec share the graph. Each has its own state.
  nn::GraphCache cache;
  nn::NamedTensors state;
  Tensor step_size = main.scalar(-0.02, f32);
  vars.for_each([&](const std::string& name, const Tensor& v) {
    const auto& [adam_factories, adam] =
        cache.create_graph(ir, Adam(), NamedInput{"variable", v.spec(), Pass::kByReference},
                           grads.at(v).spec(), step_size.spec());
    const nn::NamedTensors own = adam_factories.init(main, {.prefix = name});
    adam.bind(own).call(v, grads.at(v), step_size);
    own.for_each(
        [&](const std::string& key, const Tensor& t) { state.merge(name + "." + key, t); });
  });
  fmt::print("{} variables, {} update graphs\n", vars.size_flat(), cache.size());
  fmt::print("{}\n", nn::table(state));

  Session session(ir, {.device = cpu_device({.threads = 2})});
  HostTensor batch(features.spec);
  HostTensor truth(targets.spec);
  for (size_t i = 0; i < 8; ++i) {
    auto row = batch.as<float>().subspan(3 * i, 3);
    for (size_t k = 0; k < 3; ++k)
      row[k] = static_cast<float>((i * (3 + 2 * k) + k) % 11) / 5.0f - 1;
    truth.as<float>()[i] = row[0] * row[1] - row[2];
  }
  for (int step = 0; step <= 60; ++step) {
    HostTensors results = session.run({{features, batch}, {targets, truth}});
    if (step % 15 == 0) fmt::print("step {:2}, loss {:.4f}\n", step, results[loss].as<float>()[0]);
  }
}
