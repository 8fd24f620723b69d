#include "sluice/train/strategies/device_phases.h"

#include <map>
#include <set>

#include "sluice/ir/call.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/pipeline.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {
namespace {

class DevicePhases {
 public:
  DevicePhases(Ir ir, const NetworkGraph& network, const WeightRules& rules,
               nn::Optimizer& optimizer, const Options& options, Training& training)
      : network_(network),
        rules_(rules),
        options_(options),
        training_(training),
        main_(ir.entry_graph("train")),
        cut_(cut(network)),
        gradients_(differentiate(network, cut_, rules, WeightGradients::kAccumulate)),
        uses_(trained_weights(rules, cut_, gradients_)),
        variables_(main_, network, rules, optimizer, options, training),
        accumulators_(main_, rules, options) {
    recompute(cut_, options.recompute, gradients_);
    for (const auto& [key, block] : first_readers()) read_first_[block].push_back(key);
  }

  void build() {
    std::vector<MicroBatch> runs;
    for (int64_t m = 0; m < options_.accumulate; ++m)
      runs.emplace_back(main_, cut_, gradients_, load_micro_batch(main_, network_, training_));
    const nn::NamedTensors& weights = training_.variables;
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      const MicroBatch::Weights own = variables_.visit(main_, weights);
      for (MicroBatch& run : runs) run.forward(b, own);
      variables_.update_running(main_, cut_.blocks[b], runs, weights);
    }
    variables_.average_running();
    store_results(runs);
    if (network_.total_weight.valid()) {
      const Tensor total = zeros(main_, network_.total_weight.spec(), "total_weight");
      for (const MicroBatch& run : runs) ops::accumulate_(total, run[network_.total_weight]);
      variables_.divide_by(total);
    }
    for (size_t b = cut_.blocks.size(); b-- > 0;) {
      if (gradients_[b]) visit_backward(b, runs);
    }
    const auto gradient = [&](const std::string& key) { return reduced(key); };
    const Tensors scale = variables_.scale(gradient);
    for (const auto& [key, rule] : rules_) {
      if (!updated_.contains(key)) variables_.update(key, reduced(key), scale);
    }
  }
  const StepVariables& variables() const { return variables_; }

 private:
  void store_results(const std::vector<MicroBatch>& runs) {
    const std::vector<WrittenResult> results =
        written_results(network_.results, training_.losses, training_.predictions,
                        options_.output.value_or(Output::all()));
    KeptResults kept;
    kept.add(main_, results);
    for (const MicroBatch& run : runs) {
      for (const WrittenResult& r : results) {
        if (!kept.put(r.stream.name, run[r.value])) main_.host_store(r.stream, run[r.value]);
      }
    }
    kept.store(main_, results);
  }

  // All micro-batches add their gradients to accumulators. Then weights are updated if no other
  // phase reads them and no norm is needed.
  void visit_backward(size_t b, std::vector<MicroBatch>& runs) {
    const BlockGraph& block = cut_.blocks[b];
    Tensor counter;
    if (gradients_[b]->counter.valid()) counter = zeros(main_, {{}, f32, {}}, "mean_accum_counter");
    MicroBatch::ByUse accumulators;
    for (const size_t w : gradients_[b]->weights) {
      const std::string use = block.weights[w].name();
      accumulators_.add(block.weights[w]);
      if (!accumulators_.is_remote(use)) accumulators.emplace(use, accumulators_.tensor(use));
    }
    const MicroBatch::Weights weights = variables_.visit(main_, training_.variables);
    for (MicroBatch& run : runs) {
      accumulators_.accumulate(main_, run, b, block, gradients_[b], weights, accumulators, counter);
    }
    if (options_.max_grad_norm) return;
    for (const std::string& key : read_first_[b]) {
      variables_.update(key, reduced(key), {});
      updated_.insert(key);
    }
  }

  // The block of each trained weight whose gradient is the last one that reads the weight or adds
  // to its accumulator.
  std::map<std::string, size_t> first_readers() const {
    std::map<std::string, size_t> result;
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      if (!gradients_[b]) continue;
      for (const WeightUse& w : cut_.blocks[b].weights) {
        if (uses_.contains(w.key)) result.emplace(w.key, b);
      }
    }
    return result;
  }

  Tensor reduced(const std::string& key) const {
    return variables_.reduced(key, sum_of_uses(uses_, key, [&](const std::string& use) {
                                return accumulators_.value(use);
                              }));
  }

  const NetworkGraph& network_;
  const WeightRules& rules_;
  const Options& options_;
  Training& training_;
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  TrainedWeights uses_;
  StepVariables variables_;
  Accumulators accumulators_;
  std::map<size_t, std::vector<std::string>> read_first_;  ///< Trained weights by first reader.
  std::set<std::string> updated_;
};

}  // namespace

void build_device_phases(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                         const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                         const Options& inference, Training& training) {
  DevicePhases step(ir, network, rules, optimizer, options, training);
  step.build();
  build_eval(ir, eval, step.variables(), {}, resident(), inference, training);
}

}  // namespace sluice::train
