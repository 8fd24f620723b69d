#include "sluice/train/phases/forward_rows.h"

#include <algorithm>

#include "sluice/ir/call.h"
#include "sluice/train/phases/row_loop.h"

namespace sluice::train {
namespace {

using Readers = std::map<TensorId, int>;

const BlockGraph& row_of(const Cut& cut, const BlockGroup& group, int64_t row) {
  return cut.blocks[group.block(row)];
}

// Whether the weights of all rows are rows of remote variables.
bool has_remote_rows(const Cut& cut, const BlockGroup& group, const StepVariables& variables) {
  for (size_t i = 0; i < row_of(cut, group, 0).weights.size(); ++i) {
    std::vector<std::string> keys;
    for (int64_t r = 0; r < group.rows; ++r) keys.push_back(row_of(cut, group, r).weights[i].key);
    if (cut.uses(keys[0]) == 1 && !(variables.are_rows(keys) && variables.is_remote(keys[0])))
      return false;
  }
  return true;
}

bool is_loop(const Cut& cut, const BlockGroup& group, const Readers& readers,
             const StepVariables& variables) {
  if (group.rows == 1 || !has_remote_rows(cut, group, variables)) return false;
  size_t chains = 0;
  for (const GroupInput& input : group.inputs) {
    if (input.kind == GroupInput::Source::kSequence) return false;
    if (input.kind == GroupInput::Source::kChain) ++chains;
  }
  for (int64_t r = 0; r < group.rows; ++r) {
    const auto& outputs = row_of(cut, group, r).outputs;
    if (outputs.size() != chains) return false;
    for (const BlockValue& v : outputs) {
      if (r + 1 < group.rows && readers.at(v.whole.id()) != 1) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<PhasedBlocks> evaluated_blocks(const NetworkGraph& network, const StepBlocks& blocks,
                                           const StepVariables& variables) {
  Readers readers;  // Blocks and results that read a value.
  for (const BlockGraph& block : blocks.cut.blocks) {
    for (const BlockValue& v : block.inputs) ++readers[v.whole.id()];
  }
  for (const Prediction& p : network.results.predictions) ++readers[p.value.id()];
  std::vector<PhasedBlocks> result;
  for (const BlockGroup& group : blocks.grouping.groups) {
    const bool loop = is_loop(blocks.cut, group, readers, variables);
    result.push_back({.first = group.first,
                      .rows = group.rows,
                      .stage = blocks.stage_of[group.first],
                      .has_gradient = false,
                      .forward_loop = loop ? group.rows : 0});
  }
  return result;
}

void forward_rows(Graph& graph, const Cut& cut, const BlockGroup& group, StepVariables& variables,
                  const MicroBatch::Weights& tied, IoMode io_mode, MicroBatch& batch) {
  const BlockGraph& first = row_of(cut, group, 0);
  RowLoop loop{.rows = {.looped = group.rows}, .io_mode = io_mode};
  nn::NamedTensors chain;
  nn::NamedTensors fixed;
  for (const WeightUse& w : first.weights) {
    if (cut.uses(w.key) == 1) {
      variables.add_rows(w.key, VariablePart::kValue, false, loop.tensors);
    } else if (!fixed.has_leaf("tied." + w.key)) {
      fixed.merge("tied." + w.key, tied(w.key));
    }
  }
  const auto key = [](size_t i) { return fmt::format("input.{}", i); };
  const auto is_carried = [&](size_t i) {
    return group.inputs[i].kind == GroupInput::Source::kChain;
  };
  for (size_t i = 0; i < group.inputs.size(); ++i)
    (is_carried(i) ? chain : fixed).merge(key(i), batch[first.inputs[i].whole]);
  loop.run = [&](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                 const nn::NamedTensors& values, const nn::NamedTensors& invariants) {
    TensorMap given;
    for (const WeightUse& w : first.weights) {
      const Tensor* const shared = invariants.find_leaf("tied." + w.key);
      given.emplace_back(w.input,
                         shared != nullptr ? *shared : variables.whole(g, w.key, row, loaded));
    }
    for (size_t i = 0; i < group.inputs.size(); ++i)
      given.emplace_back(first.inputs[i].part, (is_carried(i) ? values : invariants)[key(i)]);
    const CallSiteInfo call = first.graph.call_with_info(&g, given);
    nn::NamedTensors next;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      if (is_carried(i)) next.merge(key(i), call.output(static_cast<int>(group.inputs[i].output)));
    }
    return next;
  };
  const nn::NamedTensors results = run_rows(graph, loop, chain, fixed);
  const BlockGraph& last = row_of(cut, group, group.rows - 1);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    if (is_carried(i)) batch.set(last.outputs[group.inputs[i].output].whole, results[key(i)]);
  }
}

}  // namespace sluice::train
