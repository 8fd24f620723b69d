#include "tools/mnist_model.h"

namespace sluice::tool {
namespace {

nn::Optimizer make_optimizer(const std::string& name) {
  if (name == "sgd") return nn::Optimizer::sgd();
  if (name == "momentum") return nn::Optimizer::sgd({.momentum = 0.9});
  if (name == "adam") return nn::Optimizer::adam();
  if (name == "adamw") return nn::Optimizer::adamw();
  fail(ErrorKind::kUsage, "--optimizer: '{}' is not one of sgd, momentum, adam, adamw", name);
}

}  // namespace

Mlp::Mlp(int64_t layers, int64_t width, double dropout) : dropout_(dropout) {
  for (int64_t i = 0; i < layers; ++i) fc_.add(i + 1 < layers ? width : 10);
}

Tensor Mlp::build(nn::Builder& b, Tensor image, const Tensors& seed) const {
  Tensor x = ops::reshape(image, {-1, 28 * 28});
  for (size_t i = 0; i < fc_.size(); ++i) {
    x = fc_[i](b, x);
    if (i + 1 == fc_.size()) break;
    x = ops::gelu(x);
    if (!seed.empty())
      x = b.inlined("dropout" + std::to_string(i), nn::Dropout(dropout_), x, seed[0]);
  }
  return x;
}

MnistPrograms build_mnist(const ToolOptions& o) {
  require(o.layers >= 1 && o.layers <= 100000, "--layers: {} is outside [1, 100000]", o.layers);
  require(o.width >= 1, "--width: {} is below 1", o.width);
  require(o.dropout >= 0 && o.dropout < 1, "--dropout: {} is outside [0, 1)", o.dropout);
  require(o.micro_batch >= 1, "--micro-batch: {} is below 1", o.micro_batch);
  SLUICE_CHECK(o.eval_batch >= 1);
  require(o.lr > 0, "--lr: {} is not positive", o.lr);

  MnistPrograms p;
  Graph& train = p.ir.entry_graph("train");
  p.image = p.ir.h2d_stream({{o.micro_batch, 28, 28}, f32, {}}, "image");
  p.labels = p.ir.h2d_stream({{o.micro_batch}, i32, {}}, "labels");
  const Tensor image = train.host_load(p.image);
  const Tensor labels = train.host_load(p.labels);
  Tensors seed;
  if (o.dropout > 0) {
    p.seed = p.ir.h2d_stream({{2}, u32, {}}, "seed");
    seed.push_back(train.host_load(p.seed));
  }

  const Mlp model(o.layers, o.width, o.dropout);
  const auto [factories, forward] = nn::create_graph(p.ir, model, image, seed);
  const nn::GraphWithNamedArgs backward = [&] {
    transforms::AutodiffOptions options;
    Tensors wanted;
    for (const Tensor& t : forward.args().tensors()) wanted.push_back(t);
    options.grads_required = wanted;
    return forward.autodiff(options);
  }();
  p.variables = factories.init(train, {.seed = o.seed});
  const CallSiteInfo call = forward.bind(p.variables).call_with_info(image, seed);
  const auto [loss, gradient] = ops::cross_entropy_with_grad(call.output(0), labels);
  p.loss = train.host_store(loss, "loss");
  const CallSiteInfo back =
      backward.call_with_info(gradient, backward.grad_graph_info().inputs_dict(call));
  const auto gradients = backward.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(call, back);
  p.state =
      make_optimizer(o.optimizer)
          .apply(train, p.variables, gradients, o.lr, {.remote_state = o.offload == "optimizer"});

  Graph& eval = p.ir.entry_graph("eval");
  p.eval_image = p.ir.h2d_stream({{o.eval_batch, 28, 28}, f32, {}}, "eval_image");
  const Tensor digits = eval.host_load(p.eval_image);
  const auto [eval_factories, eval_graph] = nn::create_graph(p.ir, model, digits, Tensors{});
  auto weights = p.variables.to_dict();
  for (auto& [key, variable] : weights) variable = p.ir.share_variable(variable, eval);
  const auto shared = nn::NamedTensors::from_dict(weights);
  p.eval_logits = eval.host_store(eval_graph.bind(shared).call(digits)[0], "logits");
  return p;
}

SessionOptions session_options(const ToolOptions& o) {
  return {.device = cpu_device({.memory = o.memory, .threads = static_cast<int>(o.threads)}),
          .remote = o.remote,
          .remote_memory = o.remote_memory,
          .disable = o.disable,
          .print_after = o.print_after};
}

}  // namespace sluice::tool
