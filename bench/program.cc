#include "bench/program.h"

namespace sluice::bench {

Tensor Mlp::build(nn::Builder& b, Tensor x) const {
  for (size_t i = 0; i < fc_.size(); ++i) {
    x = fc_[i](b, x);
    if (i + 1 < fc_.size()) x = ops::gelu(x);
  }
  return x;
}

void Program::complete(const nn::NamedVariableFactories& factories,
                       const nn::GraphWithNamedArgs& forward, const Tensor& x) {
  Graph& main = ir_.main_graph();
  input_data_ = Initializer::normal(0, 1).keyed({1, 2}).evaluate(x.spec());
  const nn::NamedTensors variables = factories.init(main);
  for (const Tensor& t : variables.tensors()) parameters_ += t.elements();
  const CallSiteInfo call = forward.bind(variables).call_with_info(x);
  const Tensor logits = call.output(0);
  if (update_ == Update::kNone) {
    result_data_ = HostTensor(logits.spec());
    result_ = main.host_store(logits, "logits");
    return;
  }
  label_data_ = HostTensor(TensorSpec{{logits.dim(0)}, i32, {}});
  int32_t next = 0;
  for (int32_t& label : label_data_.as<int32_t>())
    label = next++ % static_cast<int32_t>(logits.dim(1));
  labels_ = ir_.h2d_stream(label_data_.spec(), "labels");
  const auto [loss, gradient] = ops::cross_entropy_with_grad(logits, main.host_load(labels_));
  result_data_ = HostTensor(loss.spec());
  result_ = main.host_store(loss, "loss");
  transforms::AutodiffOptions options;
  options.grads_required = Tensors(forward.args().tensors());
  const nn::GraphWithNamedArgs backward = forward.autodiff(options);
  const auto& info = backward.grad_graph_info();
  const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
  nn::Optimizer optimizer = update_ == Update::kAdam ? nn::Optimizer::adam() : nn::Optimizer::sgd();
  optimizer.apply(main, variables, info.fwd_parent_ins_to_grad_parent_outs(call, back), 1e-4);
}

Binding Program::bind(const Session& session) const {
  std::vector<StreamInput> inputs{{input_, input_data_}};
  if (update_ != Update::kNone) inputs.push_back({labels_, label_data_});
  return session.bind(inputs, {{result_, result_data_}});
}

}  // namespace sluice::bench
