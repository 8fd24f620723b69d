#include "sluice/train/training_step.h"

#include "sluice/nn/autodiff.h"
#include "sluice/nn/rts.h"
#include "sluice/ops/losses.h"
#include "sluice/train/phases.h"

namespace sluice::train {
namespace {

std::vector<TensorSpec> seed_specs(const Training& t) {
  return t.draws ? std::vector<TensorSpec>{t.seed.spec} : std::vector<TensorSpec>{};
}

Tensors load_seed(Graph& graph, const Training& t) {
  return t.draws ? Tensors{graph.host_load(t.seed)} : Tensors{};
}

ops::HyperArg learning_rate(Graph& main, const StepOptions& options, const Training& t) {
  if (t.learning_rate) return main.host_load(*t.learning_rate);
  return std::get<double>(options.learning_rate);
}

// Runs one micro-batch and returns its gradients, which need no accumulators.
nn::NamedTensors gradients_of_one(Graph& main, const ModelSpec& model, const Training& t,
                                  const nn::GraphWithNamedArgs& forward) {
  const nn::GraphWithNamedArgs backward =
      forward.autodiff({.grads_required = forward.args().tensors()});
  const Tensor input = main.host_load(t.input);
  const Tensor labels = main.host_load(t.labels);
  const CallSiteInfo call = forward.bind(t.variables).call_with_info(input, load_seed(main, t));
  const auto [loss, gradient] = model.loss(call.output(0), labels);
  main.host_store(t.loss, loss);
  const CallSiteInfo back =
      backward.call_with_info(gradient, backward.grad_graph_info().inputs_dict(call));
  const auto grads = backward.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(call, back);
  nn::NamedTensors named;
  t.variables.for_each([&](const std::string& key, const Tensor& variable) {
    if (const auto found = grads.find(variable); found != grads.end())
      named.merge(key, found->second);
  });
  return named;
}

// Loops over micro-batches and returns the running mean of their gradients.
nn::NamedTensors mean_gradients(Graph& main, const ModelSpec& model, const Training& t,
                                const nn::GraphWithNamedArgs& forward, int64_t micro_batches) {
  const auto [factories, backward] =
      nn::autodiff_with_accumulation(forward, forward.args().tensors());
  Graph& g = main.ir().create_empty_graph("micro_batch");
  nn::NamedTensors weights;
  nn::NamedTensors accumulators;
  forward.args().for_each([&](const std::string& key, const Tensor& like) {
    weights.merge(key, g.input(like.spec(), key));
  });
  backward.args().for_each([&](const std::string& key, const Tensor& like) {
    accumulators.merge(key, g.input(like.spec(), key, Pass::kByReference));
  });
  const Tensor input = g.host_load(t.input);
  const Tensor labels = g.host_load(t.labels);
  const CallSiteInfo call = forward.bind(weights).call_with_info(input, load_seed(g, t));
  const auto [loss, gradient] = model.loss(call.output(0), labels);
  g.host_store(t.loss, loss);
  backward.bind(accumulators).call(gradient, backward.grad_graph_info().inputs_dict(call));

  const nn::NamedTensors zeros = factories.init_zero(main);
  TensorMap given;
  weights.for_each([&](const std::string& key, const Tensor& input) {
    given.emplace_back(input, t.variables[key]);
  });
  accumulators.for_each(
      [&](const std::string& key, const Tensor& input) { given.emplace_back(input, zeros[key]); });
  ops::repeat(main, g, micro_batches, {}, given);
  return zeros.tree("accum");
}

void build_resident(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer,
                    const StepOptions& options, Training& t) {
  Graph& main = ir.entry_graph("train");
  const auto [factories, forward] =
      nn::create_graph(ir, Sequence(model.blocks), model.input, seed_specs(t));
  t.variables = factories.init(main, {.seed = options.seed});
  const nn::NamedTensors grads = options.accumulate == 1
                                     ? gradients_of_one(main, model, t, forward)
                                     : mean_gradients(main, model, t, forward, options.accumulate);
  t.state = optimizer.apply(
      main, t.variables, nn::mean_over_replicas(grads, options.shard_threshold),
      learning_rate(main, options, t),
      {.max_grad_norm = options.max_grad_norm, .remote_state = options.offload.optimizer});

  Graph& eval = ir.entry_graph("eval");
  const Tensor input = eval.host_load(t.eval_input);
  const auto [eval_factories, graph] =
      nn::create_graph(ir, Sequence(model.eval_blocks), input, Tensors{});
  nn::NamedTensors shared;
  t.variables.for_each([&](const std::string& key, const Tensor& variable) {
    shared.merge(key, ir.share_variable(variable, eval));
  });
  t.logits = eval.host_store(graph.bind(shared).call(input)[0], "logits");
}

ModelSpec with_defaults(ModelSpec m) {
  if (m.labels.shape.rank() == 0 && m.input.shape.rank() > 0)
    m.labels = {{m.input.shape[0]}, i32, {}};
  if (m.eval_input.shape.rank() == 0) m.eval_input = m.input;
  if (m.eval_blocks.empty()) m.eval_blocks = m.blocks;
  if (!m.loss) {
    m.loss = [](const Tensor& logits, const Tensor& labels) {
      return ops::cross_entropy_with_grad(logits, labels);
    };
  }
  return m;
}

}  // namespace

Training build_training(Ir ir, const ModelSpec& given, nn::Optimizer optimizer,
                        const StepOptions& options) {
  const ModelSpec model = with_defaults(given);
  require(!model.blocks.empty() && model.eval_blocks.size() == model.blocks.size(),
          "training: blocks and eval_blocks must have the same size, at least 1, got {} and {}",
          model.blocks.size(), model.eval_blocks.size());
  require(options.accumulate >= 1, "training: accumulate must be at least 1, got {}",
          options.accumulate);
  require(options.strategy == Strategy::kPhased || !options.offload.weights,
          "training: offload.weights requires Strategy::kPhased, got Strategy::kResident");
  require(
      options.strategy == Strategy::kResident || !options.max_grad_norm,
      "training: max_grad_norm cannot be combined with Strategy::kPhased, which updates a block "
      "before all gradients are computed; use Strategy::kResident");
  Training t;
  t.input = ir.h2d_stream(model.input, "input");
  t.labels = ir.h2d_stream(model.labels, "labels");
  for (const Block& block : model.blocks) t.draws = t.draws || block.draws();
  if (t.draws) t.seed = ir.h2d_stream({{2}, u32, {}}, "seed");
  if (std::holds_alternative<StreamedRate>(options.learning_rate))
    t.learning_rate = ir.h2d_stream({{}, f32, {}}, "learning_rate");
  t.loss = ir.d2h_stream({{}, f32, {}}, "loss");
  t.eval_input = ir.h2d_stream(model.eval_input, "eval_input");
  if (options.strategy == Strategy::kResident) {
    build_resident(ir, model, optimizer, options, t);
  } else {
    build_phased(ir, model, optimizer, options, t);
  }
  t.accumulate = options.accumulate;
  t.replicas = ir.replication();
  return t;
}

}  // namespace sluice::train
