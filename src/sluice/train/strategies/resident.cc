#include "sluice/train/strategies/resident.h"

#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {
namespace {

class Resident {
 public:
  Resident(Ir ir, const NetworkGraph& network, const WeightGroups& groups, nn::Optimizer& optimizer,
           const StepOptions& options, Training& training)
      : network_(network),
        options_(options),
        training_(training),
        main_(ir.entry_graph("train")),
        cut_(cut(network)),
        gradients_(differentiate(
            network, cut_, groups,
            options.accumulate == 1 ? WeightGradients::kReturn : WeightGradients::kSharedMean)),
        uses_(trained_weights(groups, cut_, gradients_)),
        variables_(main_, network, groups, optimizer, options, training) {
    recompute(cut_, options.recompute, gradients_);
    if (options.locations.activations == Location::kRemote)
      activations_.emplace(cut_, gradients_, options.locations.min_elements_off_device);
  }

  void build() {
    if (options_.accumulate == 1) {
      train_one();
    } else {
      train_several();
    }
  }
  const StepVariables& variables() const { return variables_; }

 private:
  using ByUse = MicroBatch::ByUse;

  MicroBatch load(Graph& g) {
    return {g,
            cut_,
            gradients_,
            load_micro_batch(g, network_, training_),
            activations_ ? &*activations_ : nullptr,
            options_.io_mode};
  }

  // `weights` has the tensors of running variables, too.
  void forward(Graph& g, MicroBatch& run, const nn::NamedTensors& weights) const {
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      run.forward(b, variables_.visit(g, weights));
      variables_.update_running(g, cut_.blocks[b], {&run, 1}, weights);
    }
    store_results(g, network_, training_, run);
  }

  // Runs one micro-batch. Its gradients need no accumulators.
  void train_one() {
    MicroBatch run = load(main_);
    forward(main_, run, training_.variables);
    MeanGradients means(main_, options_);
    for (size_t b = cut_.blocks.size(); b-- > 0;) {
      const MicroBatch::Weights weights = variables_.visit(main_, training_.variables);
      for (const auto& [use, gradient] : run.backward(b, weights, {}, {}))
        means.keep(use, gradient);
    }
    update(means);
  }

  // Loops over micro-batches, which add their gradients to running means.
  void train_several() {
    Graph& g = main_.ir().create_empty_graph("micro_batch");
    TensorMap given;
    nn::NamedTensors weights;
    network_.graph.args().for_each([&](const std::string& key, const Tensor& like) {
      if (variables_.is_remote(key)) return;
      weights.merge(key, g.input(like.spec(), key));
      given.emplace_back(weights[key], training_.variables[key]);
    });
    const auto inside = [&](const Tensor& t) {
      given.emplace_back(g.input(t.spec(), t.name(), Pass::kByReference), t);
      return given.back().first;
    };
    for (const nn::internal::RunningUpdate& u : network_.updates) {
      if (!variables_.is_remote(u.key)) weights.merge(u.key, inside(training_.variables[u.key]));
    }
    const Tensor counter = inside(zeros(main_, {{}, f32, {}}, "mean_accum_counter"));
    MeanGradients means(main_, options_);
    ByUse accumulators;
    for (const auto& [key, uses] : uses_) {
      for (const WeightUse* use : uses) {
        means.add(*use);
        if (!means.is_remote(use->name()))
          accumulators.emplace(use->name(), inside(means.tensor(use->name())));
      }
    }
    MicroBatch run = load(g);
    forward(g, run, weights);
    for (size_t b = cut_.blocks.size(); b-- > 0;) {
      means.accumulate(g, run, b, cut_.blocks[b], gradients_[b], variables_.visit(g, weights),
                       accumulators, counter);
    }
    ops::add_(counter, ops::scalar_like(counter, 1));
    ops::repeat(main_, g, options_.accumulate, {}, given);
    update(means);
  }

  void update(const MeanGradients& means) {
    variables_.average_running();
    const auto mean = [&](const std::string& use) { return means.mean(use); };
    if (means.any_remote()) {
      update_one_by_one([&](const std::string& key) { return sum_of_uses(uses_, key, mean); });
    } else {
      update_together(sums_of_uses(uses_, mean));
    }
  }

  // All gradients are averaged over the replicas before the first update.
  void update_together(const nn::NamedTensors& means) {
    std::map<std::string, Tensor> reduced;
    means.for_each([&](const std::string& key, const Tensor& mean) {
      reduced.emplace(key, variables_.reduced(mean));
    });
    const Tensors scale = variables_.scale([&](const std::string& key) { return reduced.at(key); });
    for (const auto& [key, gradient] : reduced) variables_.update(key, gradient, scale);
  }

  // A gradient is loaded and averaged for each use, so that few are on the device at a time.
  void update_one_by_one(const StepVariables::Gradient& mean) {
    const auto reduced = [&](const std::string& key) { return variables_.reduced(mean(key)); };
    const Tensors scale = variables_.scale(reduced);
    for (const auto& [key, uses] : uses_) variables_.update(key, reduced(key), scale);
  }

  const NetworkGraph& network_;
  const StepOptions& options_;
  Training& training_;
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  TrainedWeights uses_;
  StepVariables variables_;
  std::optional<RemoteActivations> activations_;
};

}  // namespace

void build_resident(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                    const WeightGroups& groups, nn::Optimizer& optimizer,
                    const StepOptions& options, Training& training) {
  Resident step(ir, network, groups, optimizer, options, training);
  step.build();
  step.variables().emit_eval(eval);
}

}  // namespace sluice::train
