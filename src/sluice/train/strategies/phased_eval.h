#pragma once
#include <map>
#include <string>
#include <vector>

#include "sluice/train/cut/block_groups.h"
#include "sluice/train/strategies/phased_layer.h"

namespace sluice::train {

/// A group of blocks and the layer that runs its phases.
struct PhasedGroup {
  BlockGroup group;
  std::vector<std::string> blocks;                       ///< Name of each row's block.
  std::vector<std::map<std::string, std::string>> keys;  ///< For each row: path to key of a weight.
  PhasedLayer layer;
};

/// Returns a weight or running variable, given by its path, in a graph of any entry; the graph gets
/// ops that load it. `variables` has the variables that are not in a group; these are on the
/// device.
Tensor find_weight(const std::vector<PhasedGroup>& groups, Graph& graph, const std::string& path,
                   const nn::NamedTensors& variables);

/// Adds the blocks of an evaluation network to entry graph `main`, one after another. A block's
/// offloaded weights are loaded for that block only. `values` has the network's fields by network
/// tensor, and gets the results of all blocks but those inside a loop over rows.
void emit_evaluation(const std::vector<PhasedGroup>& groups, const NetworkGraph& network,
                     const nn::NamedTensors& variables, Graph& main,
                     std::map<TensorId, Tensor>& values);

}  // namespace sluice::train
