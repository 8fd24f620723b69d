#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sluice/train/cut/ids.h"
#include "sluice/train/network.h"

namespace sluice::train {

/// A tensor of a network and the tensor of a block's graph that represents it.
struct BlockValue {
  Tensor whole;  ///< In the network's graph.
  Tensor part;   ///< In the block's graph.
};

/// The weight of a block as one module call reads it. The readers of a weight are grouped by their
/// block and module path; each group is a use. A weight that several calls read is tied.
struct WeightUse {
  std::string key;  ///< Key of the weight in the network.
  int use = 0;      ///< Number of the use among all uses of the weight, in order of blocks.
  Tensor input;     ///< Input of the block's graph.
  /// Name of the input: "fc1.weight" for use 0, then "fc1.weight.u1", …
  std::string name() const;
};

/// The update of a running variable by a value that a block computes.
struct RunningUse {
  std::string key;   ///< Key of the variable in the network.
  TensorSpec spec;   ///< Spec of the variable.
  BlockValue value;  ///< An output of the block.
  nn::RunningRule rule;
};

/// A part of a network as a graph of its own.
struct BlockGraph {
  std::string name;
  nn::GraphWithNamedArgs graph;     ///< Without named arguments.
  std::vector<BlockValue> inputs;   ///< Fields, seeds, and outputs of earlier blocks.
  std::vector<WeightUse> weights;   ///< In the order of their first readers.
  std::vector<BlockValue> outputs;  ///< Values that later blocks or the caller read.
  std::vector<RunningUse>
      updates;  ///< In the order of their declarations. The caller applies them.

  /// Returns the use with this WeightUse::name(), which exists.
  const WeightUse& use(const std::string& name) const;
  /// Returns the block's tensor for an output or input; an empty handle if there is none.
  Tensor output(const Tensor& whole) const;
  Tensor input(const Tensor& whole) const;
};

struct Cut {
  /// Derives the seeds of all blocks from the network's seed. Present with SeedOps::kApart, if the
  /// network draws.
  std::optional<BlockGraph> seeds;
  Ids<BlockId, BlockGraph> blocks;  ///< In an order in which each one reads earlier ones only.

  int uses(const std::string& key) const;  ///< Number of uses of a weight.
};

/// Where ops that derive seeds from the network's seed are. With kApart, blocks that differ only in
/// their path have equal graphs.
enum class SeedOps { kInBlocks, kApart };

/// Cuts a network's graph into one graph for each block.
///
/// Before: the network's graph. Its ops name their blocks (nn/block.h). If no op names one, the
/// submodules of the network's module are the blocks, and an op outside all submodules belongs to
/// the block of the op before it.
/// After: new graphs of the same ops. Together they compute what the network computes.
///
/// Error{kUsage}: an op outside all blocks while others have one; blocks that read results of each
/// other, named with two ops; an op that writes a tensor of another block, a weight or a field; a
/// read of a value that its block overwrites afterwards; an op that uses a stream or remote buffer.
Cut cut(const NetworkGraph& network, SeedOps seeds = SeedOps::kInBlocks);

}  // namespace sluice::train
