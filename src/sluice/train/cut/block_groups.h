#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/train/cut/block_gradients.h"

namespace sluice::train {

/// The source of an input of a group's blocks.
struct GroupInput {
  enum class Source {
    kChain,      ///< Row r reads an output of row r - 1. Row 0 reads a value of an earlier block.
    kInvariant,  ///< All rows read one value.
    kSequence,   ///< Row r reads the r-th of several values from outside, such as seeds.
  };
  Source kind = Source::kInvariant;
  size_t output = 0;  ///< kChain: the output, by its position in BlockGraph::outputs.
};

/// Neighbouring blocks with equal graphs and equal gradient graphs. Each one is a row.
struct BlockGroup {
  BlockId first{0};  ///< Block of row 0.
  int64_t rows = 1;
  std::vector<GroupInput> inputs;  ///< One for each of BlockGraph::inputs.

  /// Returns the block of a row.
  BlockId block(int64_t row) const { return BlockId(first + row); }
  /// Returns the block after the last row.
  BlockId end() const { return block(rows); }
};

/// Returns a text that is equal for two blocks exactly if their graphs are equal up to names: the
/// same inputs, weights and outputs, the same ops on them, and the same updates of running
/// variables.
std::string structure_of(const BlockGraph& block);
/// Does the same for graphs: the same inputs and outputs, and the same ops on them.
std::string structure_of(const Graph& graph);

/// Where a phase finds a value: a row of the buffer of its stage for its spec. A gradient of the
/// value that a block of this stage computes has the same row in another buffer.
struct ValueRow {
  TensorSpec spec = {};
  int64_t row = 0;
  StageId stage{0};  ///< Stage of the block that makes it. Seeds belong to stage 0.
};

struct Grouping {
  std::vector<BlockGroup> groups;
  /// Rows of all outputs of blocks and of seeds, keyed by network tensor.
  std::map<TensorId, ValueRow> value_rows;
};

/// Groups blocks and assigns each value a row. Row r of a group then finds each input at row r plus
/// a constant, or at a fixed row. Blocks are grouped only if that is possible. The last block
/// stands alone. So does a block with a field as input, or with a loss or prediction in training.
/// Rows may read one tied weight in one place; other blocks with a tied weight stand alone. Rows
/// treat the gradients of their weights alike. `gradients` may be empty (evaluation): then blocks
/// need not have equal gradient graphs. `stages` has the stage of each block; empty: one stage.
/// Rows are blocks of one stage; a block that makes or reads a value of several stages stands
/// alone.
Grouping group_blocks(const NetworkGraph& network, const Cut& cut, const BlockGradients& gradients,
                      const WeightRules& weight_rules = {},
                      const Ids<BlockId, StageId>& stages = {});

}  // namespace sluice::train
