#include "sluice/train/strategies/accumulators.h"

#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/cast.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {
namespace {

Graph::ProvenanceFields accumulates(const std::string& use) {
  return {.role = OpRole::kAccumulation, .variable = use};
}

}  // namespace

void Accumulators::add(const WeightUse& use) {
  TensorSpec spec = use.input.spec();
  spec.dtype = rules_.at(use.key).gradient.accumulator;
  const Graph::ProvenanceScope scope(main_, accumulates(use.name()));
  keep_as(use.name(), zeros(main_, spec, "accum." + use.name()));
}

void Accumulators::keep(const WeightUse& use, const Tensor& gradient) {
  const Graph::ProvenanceScope scope(main_, accumulates(use.name()));
  keep_as(use.name(), ops::cast(gradient, rules_.at(use.key).gradient.accumulator));
}

void Accumulators::keep_as(const std::string& use, const Tensor& gradient) {
  if (!is_off_device(options_.locations.accumulators, gradient.spec(), options_.locations)) {
    here_.emplace(use, gradient);
    return;
  }
  const RemoteBuffer buffer = main_.ir().remote_buffer(gradient.spec());
  const Graph::IoScope scope(main_, options_.io_mode);
  main_.remote_store(buffer, 0, gradient);
  there_.emplace(use, buffer);
}

Tensor Accumulators::load(Graph& graph, const std::string& use) const {
  const Graph::ProvenanceScope of(graph, accumulates(use));
  const Graph::IoScope scope(graph, options_.io_mode);
  return graph.remote_load(there_.at(use), 0, "accum." + use);
}

void Accumulators::store(Graph& graph, const std::string& use, const Tensor& accumulator) const {
  const Graph::ProvenanceScope of(graph, accumulates(use));
  const Graph::IoScope scope(graph, options_.io_mode);
  graph.remote_store(there_.at(use), 0, accumulator);
}

void Accumulators::accumulate(Graph& graph, MicroBatch& run, BlockId b, const BlockGraph& block,
                              const std::optional<BlockGradient>& gradient,
                              const MicroBatch::Weights& weights, const MicroBatch::ByUse& here,
                              const Tensor& counter) const {
  MicroBatch::ByUse accumulators = here;
  MicroBatch::ByUse loaded;
  if (gradient) {
    for (const size_t w : gradient->weights) {
      const std::string use = block.weights[w].name();
      if (is_remote(use) && !here.contains(use)) loaded.emplace(use, load(graph, use));
    }
  }
  accumulators.insert(loaded.begin(), loaded.end());
  run.backward(b, weights, accumulators, counter);
  for (const auto& [use, t] : loaded) store(graph, use, t);
}

}  // namespace sluice::train
