/// Lesson 7: data parallel training. Each replica runs the program on its own samples. All replicas
/// apply the mean of their gradients, so that their models stay equal.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

constexpr int kReplicas = 4;
constexpr int kSteps = 40;

int main() {
  Ir ir(kReplicas);
  Graph& main = ir.main_graph();
  H2dStream features = ir.h2d_stream({{8, 3}, f32, {}}, "features");
  H2dStream targets = ir.h2d_stream({{8, 1}, f32, {}}, "targets");
  Tensor x = main.host_load(features);

  // A variable has the same value on all replicas, unless it is given groups of replicas.
  auto [factories, linear] = nn::create_graph(ir, nn::Linear(1), x.spec());
  nn::NamedTensors vars = factories.init(main);
  nn::GraphWithNamedArgs backward = linear.autodiff({.grads_required = linear.args().tensors()});

  CallSiteInfo call = linear.bind(vars).call_with_info(x);
  Tensor error = call.output(0) - main.host_load(targets);
  D2hStream loss = main.host_store(ops::mean(error * error), "loss");
  CallSiteInfo back =
      backward.call_with_info(error * 0.25, backward.grad_graph_info().inputs_dict(call));
  auto grads = backward.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(call, back);

  // All replicas participate in each collective, in the order of the program.
  vars.for_each([&](const std::string&, const Tensor& v) {
    ops::scaled_add_(v, ops::replicated_all_reduce(grads.at(v), ops::CollectiveOp::kMean), 1, -0.1);
  });

  Session session(ir, {.device = cpu_device({.threads = 2})});

  // The first axis of a stream's array is the replica. Each replica gets its own samples of y =
  // x·(1, -2, 3) + 0.5.
  HostTensor batch({{kReplicas, 8, 3}, f32, {}});
  HostTensor truth({{kReplicas, 8, 1}, f32, {}});
  for (size_t i = 0; i < truth.as<float>().size(); ++i) {
    auto row = batch.as<float>().subspan(3 * i, 3);
    for (size_t k = 0; k < 3; ++k)
      row[k] = static_cast<float>((i * (3 + 2 * k) + k) % 11) / 5.0f - 1;
    truth.as<float>()[i] = row[0] - 2 * row[1] + 3 * row[2] + 0.5f;
  }
  for (int step = 0; step <= kSteps; ++step) {
    HostTensors results = session.run({{features, batch}, {targets, truth}});
    if (step % 10 != 0) continue;
    fmt::print("step {:2}, losses of the replicas:", step);
    for (float l : results[loss].as<float>()) fmt::print(" {:.3f}", l);
    fmt::print("\n");
  }
  vars.for_each([&](const std::string& name, const Tensor& v) {
    HostTensor value = session.read(v);
    fmt::print("{}:", name);
    for (float w : value.as<float>()) fmt::print(" {:.2f}", w);
    fmt::print("\n");
  });
}
