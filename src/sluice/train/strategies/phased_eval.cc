#include "sluice/train/strategies/phased_eval.h"

#include <algorithm>
#include <set>

#include "sluice/ir/call.h"
#include "sluice/train/cut/block_groups.h"

namespace sluice::train {
namespace {

class PhasedEvaluation {
 public:
  PhasedEvaluation(StepVariables& variables, const NetworkGraph& network, IoMode io_mode,
                   Graph& main, std::map<TensorId, Tensor>& values)
      : variables_(variables), cut_(cut(network)), io_mode_(io_mode), main_(main), values_(values) {
    for (const BlockGraph& block : cut_.blocks) {
      for (const BlockValue& v : block.inputs) ++readers_[v.whole.id()];
    }
    for (const Prediction& p : network.results.predictions) ++readers_[p.value.id()];
    for (const BlockGroup& rows : group_blocks(network, cut_, {}).groups) run(rows);
  }

 private:
  void run(const BlockGroup& rows) {
    if (is_loop(rows)) return run_loop(rows);
    for (int64_t r = 0; r < rows.rows; ++r)
      run_block(cut_.blocks[rows.first + static_cast<size_t>(r)]);
  }

  bool is_loop(const BlockGroup& rows) const;
  void run_loop(const BlockGroup& rows);
  void run_block(const BlockGraph& block);

  StepVariables& variables_;
  Cut cut_;
  IoMode io_mode_;
  Graph& main_;
  std::map<TensorId, Tensor>& values_;
  std::map<TensorId, int> readers_;  ///< Blocks and results that read a value.
};

// Whether the rows can run in a loop: their weights are rows, each row gives all its results to the
// next row, and only that row reads them.
bool PhasedEvaluation::is_loop(const BlockGroup& rows) const {
  if (rows.rows == 1) return false;
  for (size_t i = 0; i < cut_.blocks[rows.first].weights.size(); ++i) {
    std::vector<std::string> keys;
    for (int64_t r = 0; r < rows.rows; ++r)
      keys.push_back(cut_.blocks[rows.first + static_cast<size_t>(r)].weights[i].key);
    if (cut_.uses(keys[0]) == 1 && !variables_.are_rows(keys)) return false;
  }
  for (const GroupInput& input : rows.inputs) {
    if (input.kind == GroupInput::Kind::kSequence) return false;
  }
  const auto chains = std::count_if(rows.inputs.begin(), rows.inputs.end(), [](const auto& i) {
    return i.kind == GroupInput::Kind::kChain;
  });
  for (int64_t r = 0; r < rows.rows; ++r) {
    const auto& outputs = cut_.blocks[rows.first + static_cast<size_t>(r)].outputs;
    if (static_cast<int64_t>(outputs.size()) != chains) return false;
    for (const BlockValue& v : outputs) {
      if (r + 1 < rows.rows && readers_.at(v.whole.id()) != 1) return false;
    }
  }
  return true;
}

void PhasedEvaluation::run_loop(const BlockGroup& rows) {
  const BlockGraph& first = cut_.blocks[rows.first];
  const BlockGraph& last = cut_.blocks[rows.first + static_cast<size_t>(rows.rows) - 1];
  RowLoop loop{.rows = rows.rows, .io_mode = io_mode_};
  nn::NamedTensors chain;
  nn::NamedTensors fixed;
  for (const WeightUse& w : first.weights) {
    const std::string tied = "tied." + w.key;
    if (cut_.uses(w.key) > 1) {
      if (!fixed.has_leaf(tied)) fixed.merge(tied, variables_.weight(main_, w.key));
    } else if (!variables_.add_rows(w.key, VariablePart::kValue, false, loop.tensors))
      loop.form = RowLoop::Form::kInLine;
  }
  const auto key = [](size_t i) { return fmt::format("input.{}", i); };
  for (size_t i = 0; i < rows.inputs.size(); ++i) {
    const bool carried = rows.inputs[i].kind == GroupInput::Kind::kChain;
    (carried ? chain : fixed).merge(key(i), values_.at(first.inputs[i].whole.id()));
  }
  loop.run = [&](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                 const nn::NamedTensors& values, const nn::NamedTensors& invariants) {
    TensorMap given;
    for (const WeightUse& w : first.weights) {
      const Tensor* const tied = invariants.find_leaf("tied." + w.key);
      given.emplace_back(w.input,
                         tied != nullptr ? *tied : variables_.whole(g, w.key, row, loaded));
    }
    for (size_t i = 0; i < rows.inputs.size(); ++i) {
      const bool carried = rows.inputs[i].kind == GroupInput::Kind::kChain;
      given.emplace_back(first.inputs[i].part, (carried ? values : invariants)[key(i)]);
    }
    const CallSiteInfo call = first.graph.call_with_info(&g, given);
    nn::NamedTensors next;
    for (size_t i = 0; i < rows.inputs.size(); ++i) {
      if (rows.inputs[i].kind == GroupInput::Kind::kChain)
        next.merge(key(i), call.output(static_cast<int>(rows.inputs[i].output)));
    }
    return next;
  };
  const nn::NamedTensors results = run_rows(main_, loop, chain, fixed);
  for (size_t i = 0; i < rows.inputs.size(); ++i) {
    if (rows.inputs[i].kind == GroupInput::Kind::kChain)
      values_.emplace(last.outputs[rows.inputs[i].output].whole.id(), results[key(i)]);
  }
}

void PhasedEvaluation::run_block(const BlockGraph& block) {
  TensorMap given;
  for (const BlockValue& v : block.inputs) given.emplace_back(v.part, values_.at(v.whole.id()));
  for (const WeightUse& w : block.weights)
    given.emplace_back(w.input, variables_.weight(main_, w.key));
  const CallSiteInfo call = block.graph.call_with_info(&main_, given);
  for (size_t i = 0; i < block.outputs.size(); ++i)
    values_.emplace(block.outputs[i].whole.id(), call.output(static_cast<int>(i)));
}

}  // namespace

void emit_evaluation(StepVariables& variables, const NetworkGraph& network, IoMode io_mode,
                     Graph& main, std::map<TensorId, Tensor>& values) {
  PhasedEvaluation(variables, network, io_mode, main, values);
}

}  // namespace sluice::train
