#include "sluice/train/training_step.h"

#include <algorithm>

#include "sluice/train/strategies/phases.h"
#include "sluice/train/strategies/resident.h"

namespace sluice::train {
namespace {

void add_streams(Ir& ir, const NetworkGraph& graph, const NetworkGraph& eval,
                 const StepOptions& options, Training& t) {
  for (const auto& [name, input] : graph.fields)
    t.fields.push_back(ir.h2d_stream(input.spec(), name));
  if (!graph.seed.empty()) t.seed = ir.h2d_stream(graph.seed[0].spec(), "seed");
  if (std::holds_alternative<StreamedRate>(options.learning_rate))
    t.learning_rate = ir.h2d_stream({{}, f32, {}}, "learning_rate");
  for (const Loss& loss : graph.results.losses) {
    t.losses.push_back(ir.d2h_stream(loss.value.spec(), loss.name));
    t.loss_weights.push_back(loss.weight);
  }
  for (const Prediction& p : graph.results.predictions)
    t.predictions.push_back(ir.d2h_stream(p.value.spec(), p.name));
  for (const auto& [name, input] : eval.fields)
    t.eval_fields.push_back(ir.h2d_stream(input.spec(), "eval_" + name));
  for (const Prediction& p : eval.results.predictions) {
    const auto& trained = graph.results.predictions;
    const bool taken = std::any_of(trained.begin(), trained.end(),
                                   [&](const Prediction& other) { return other.name == p.name; });
    t.eval_predictions.push_back(ir.d2h_stream(p.value.spec(), taken ? "eval_" + p.name : p.name));
  }
}

std::vector<TorchWeight> torch_weights(const nn::NamedVariableFactories& factories) {
  std::vector<TorchWeight> weights;
  factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    TorchWeight w{.path = key, .name = key};
    if (const auto& torch = factory.torch()) {
      const size_t module = key.rfind('.') + 1;  // npos + 1 is 0: the outermost module.
      w.name = key.substr(0, module) + std::string(torch->name);
      w.transposed = torch->transposed;
    }
    weights.push_back(std::move(w));
  });
  return weights;
}

}  // namespace

Training build_training(Ir ir, const Network& network, nn::Optimizer optimizer,
                        const StepOptions& options) {
  require(options.accumulate >= 1, "training: accumulate must be at least 1, got {}",
          options.accumulate);
  const TensorLocations& where = options.locations;
  require(options.strategy == Strategy::kResident || where.activations == Location::kDevice ||
              where.min_elements_off_device == TensorLocations().min_elements_off_device,
          "training: min_elements_off_device must be {} in phases with remote activations, got {}; "
          "they move whole blocks",
          TensorLocations().min_elements_off_device, where.min_elements_off_device);
  require(!options.recompute.all || options.recompute.blocks.empty(),
          "training: recompute must be all blocks or a list of blocks, got both");
  const NetworkGraph graph = network.build(ir, nn::RunMode::kTrain);
  WeightGroups groups;
  const nn::NamedTensors weights = graph.factories.select(graph.graph.args(), nn::Role::kWeight);
  for (const std::string& key : weights.keys_flat()) {
    if (const auto group = optimizer.group_of(key)) groups.emplace(key, *group);
  }
  const NetworkGraph eval = network.build(ir, nn::RunMode::kEvaluate);
  Training t;
  add_streams(ir, graph, eval, options, t);
  if (options.strategy == Strategy::kResident) {
    build_resident(ir, graph, eval, groups, optimizer, options, t);
  } else {
    build_phased(ir, graph, eval, groups, optimizer, options, t);
  }
  t.torch_weights = torch_weights(graph.factories);
  t.accumulate = options.accumulate;
  t.replicas = ir.replication();
  return t;
}

}  // namespace sluice::train
