#include "sluice/train/strategies/resident.h"

#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/micro_batch.h"

namespace sluice::train {
namespace {

Tensor zeros(Graph& graph, const TensorSpec& spec, const std::string& name) {
  const builtin::InitOptions init{.shape = spec.shape, .dtype = spec.dtype};
  return graph.emit(builtin::init(), {}, to_attrs(init), {.name = name, .outputs = {spec}})[0];
}

class Resident {
 public:
  Resident(Ir ir, const NetworkGraph& network, nn::Optimizer& optimizer, const StepOptions& options,
           Training& training)
      : network_(network),
        optimizer_(optimizer),
        options_(options),
        training_(training),
        main_(ir.entry_graph("train")),
        cut_(cut(network)),
        gradients_(differentiate(
            network, cut_,
            options.accumulate == 1 ? WeightGradients::kReturn : WeightGradients::kSharedMean)),
        uses_(trained_weights(network, cut_, gradients_)) {}

  void build() {
    training_.variables = network_.factories.init(main_, {.seed = options_.seed});
    nn::NamedTensors gradients = options_.accumulate == 1 ? gradients_of_one() : mean_gradients();
    gradients = nn::mean_over_replicas(gradients, options_.shard_threshold);
    const ops::HyperArg rate = training_.learning_rate
                                   ? ops::HyperArg(main_.host_load(*training_.learning_rate))
                                   : ops::HyperArg(std::get<double>(options_.learning_rate));
    training_.state = optimizer_.apply(
        main_, training_.variables, gradients, rate,
        {.max_grad_norm = options_.max_grad_norm, .remote_state = options_.offload.optimizer});
  }

 private:
  using ByUse = MicroBatch::ByUse;

  MicroBatch load(Graph& g) const {
    std::map<TensorId, Tensor> values;
    for (size_t i = 0; i < network_.fields.size(); ++i)
      values.emplace(network_.fields[i].second.id(), g.host_load(training_.fields[i]));
    for (const Tensor& t : network_.seed) values.emplace(t.id(), g.host_load(*training_.seed));
    return {g, cut_, gradients_, std::move(values)};
  }

  void store_results(Graph& g, const MicroBatch& run) const {
    const Results& results = network_.results;
    for (size_t i = 0; i < results.losses.size(); ++i)
      g.host_store(training_.losses[i], run[results.losses[i].value]);
    for (size_t i = 0; i < results.predictions.size(); ++i)
      g.host_store(training_.predictions[i], run[results.predictions[i].value]);
  }

  // Runs one micro-batch and returns its gradients, which need no accumulators.
  nn::NamedTensors gradients_of_one() const {
    MicroBatch run = load(main_);
    run.forward(training_.variables);
    store_results(main_, run);
    return sums_of_uses(run.backward({}, {}));
  }

  // Loops over micro-batches and returns the running means of the gradients.
  nn::NamedTensors mean_gradients() const {
    Graph& g = main_.ir().create_empty_graph("micro_batch");
    TensorMap given;
    nn::NamedTensors weights;
    network_.graph.args().for_each([&](const std::string& key, const Tensor& like) {
      weights.merge(key, g.input(like.spec(), key));
      given.emplace_back(weights[key], training_.variables[key]);
    });
    const auto state = [&](const TensorSpec& spec, const std::string& name) {
      const Tensor inside = g.input(spec, name, Pass::kByReference);
      given.emplace_back(inside, zeros(main_, spec, name));
      return inside;
    };
    const Tensor counter = state({{}, f32, {}}, "mean_accum_counter");
    ByUse accumulators;
    ByUse means;
    for (const auto& [key, uses] : uses_) {
      for (const WeightUse* use : uses) {
        accumulators.emplace(use->name(), state(use->input.spec(), "accum." + use->name()));
        means.emplace(use->name(), given.back().second);
      }
    }
    MicroBatch run = load(g);
    run.forward(weights);
    store_results(g, run);
    run.backward(accumulators, counter);
    ops::add_(counter, ops::scalar_like(counter, 1));
    ops::repeat(main_, g, options_.accumulate, {}, given);
    return sums_of_uses(means);
  }

  // Adds the gradients of the uses of each weight, from the last use on.
  nn::NamedTensors sums_of_uses(const ByUse& gradients) const {
    nn::NamedTensors sums;
    for (const auto& [key, uses] : uses_) {
      Tensor sum;
      for (size_t u = uses.size(); u-- > 0;) {
        const Tensor& own = gradients.at(uses[u]->name());
        sum = sum.valid() ? ops::add(sum, own) : own;
      }
      sums.merge(key, sum);
    }
    return sums;
  }

  const NetworkGraph& network_;
  nn::Optimizer& optimizer_;
  const StepOptions& options_;
  Training& training_;
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  TrainedWeights uses_;
};

}  // namespace

void build_resident(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                    nn::Optimizer& optimizer, const StepOptions& options, Training& training) {
  Resident(ir, network, optimizer, options, training).build();
  Graph& entry = ir.entry_graph("eval");
  TensorMap given;
  for (size_t i = 0; i < eval.fields.size(); ++i)
    given.emplace_back(eval.fields[i].second, entry.host_load(training.eval_fields[i]));
  training.variables.for_each([&](const std::string& key, const Tensor& variable) {
    if (const Tensor* input = eval.graph.args().find_leaf(key))
      given.emplace_back(*input, ir.share_variable(variable, entry));
  });
  const CallSiteInfo call = eval.graph.call_with_info(&entry, given);
  for (size_t i = 0; i < eval.results.predictions.size(); ++i) {
    entry.host_store(training.eval_predictions[i],
                     call.graph_to_parent(eval.results.predictions[i].value));
  }
}

}  // namespace sluice::train
