#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/train/cut/cut.h"
#include "sluice/train/cut/gradient_rule.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// A gradient that the gradient graph of a block reads.
struct TakenGradient {
  BlockValue value;   ///< An output or an input of the block: the gradient is that of this value.
  Tensor loss = {};   ///< Network tensor of this block that holds the gradient, from a loss. Empty:
                      ///< later blocks compute the gradient, as a chain over their readers.
  Tensor input = {};  ///< Input of the gradient graph.
};

/// The gradient graph of a block (nn::GraphWithNamedArgs::grad_graph_info() connects it to the
/// block's graph). Its first outputs are the gradients of `inputs`.
struct BlockGradient {
  nn::GraphWithNamedArgs graph;
  std::vector<TakenGradient> taken;
  Tensors inputs = {};               ///< Network tensors whose gradients the block computes.
  std::vector<size_t> weights = {};  ///< Positions in BlockGraph::weights that have a gradient.
  Tensor counter = {};               ///< Input of the graph, if it adds to running means.
  Tensors accumulators = {};         ///< Inputs of the graph, one for each of `weights`.
};

/// One entry for each block; absent for a block without a gradient graph.
using BlockGradients = Ids<BlockId, std::optional<BlockGradient>>;

/// How gradient graphs pass on the gradients of weights.
enum class WeightGradients {
  kReturn,            ///< They are outputs, after those of `inputs`.
  kAccumulate,        ///< They are added to accumulators. With running means there is a counter.
  kAccumulateShared,  ///< As kAccumulate, but the caller advances the counter, once for all blocks.
};

/// Differentiates each block of a cut: the sum of the network's losses by the weights.
///
/// A value's gradient is a chain over its readers in descending order. A block that reads a value
/// of an earlier block reads the chain of the later readers and adds its own readers to it. A
/// gradient that does not exist is absent. A block does not have a gradient graph if losses depend
/// neither on its trained weights nor, through it, on those of earlier blocks.
///
/// Returns one entry for each block. May append outputs (kept values) to the blocks' graphs.
BlockGradients differentiate(const NetworkGraph& network, const Cut& cut, const WeightRules& rules,
                             WeightGradients weights);

/// Makes the gradient graphs of some blocks compute the block again instead of reading its inner
/// tensors. The last block is not changed, because its gradient follows at once. Error{kUsage}
/// names a block that does not exist, or an op that must not run twice.
void recompute(const Cut& cut, const Recompute& blocks, BlockGradients& gradients);

/// The uses of each trained weight that have a gradient, ascending, by key of the weight. The
/// pointers refer to the cut.
using TrainedWeights = std::map<std::string, std::vector<const WeightUse*>>;

/// Error{kUsage} names a trained weight that no loss depends on.
TrainedWeights trained_weights(const WeightRules& rules, const Cut& cut,
                               const BlockGradients& gradients);

/// Returns the gradient of a weight: those of its uses, added from the last use on. `gradient`
/// returns that of a use (WeightUse::name()).
Tensor sum_of_uses(const TrainedWeights& weights, const std::string& key,
                   const std::function<Tensor(const std::string& use)>& gradient);
/// Returns the gradients of all weights.
nn::NamedTensors sums_of_uses(const TrainedWeights& weights,
                              const std::function<Tensor(const std::string& use)>& gradient);

}  // namespace sluice::train
