#include "sluice/train/strategies/phased_eval.h"

#include <algorithm>

#include "sluice/ir/call.h"

namespace sluice::train {
namespace {

class PhasedEvaluation {
 public:
  PhasedEvaluation(const std::vector<PhasedGroup>& groups, const NetworkGraph& network,
                   const nn::NamedTensors& variables, Graph& main,
                   std::map<TensorId, Tensor>& values)
      : groups_(groups), variables_(variables), cut_(cut(network)), main_(main), values_(values) {
    for (const BlockGraph& block : cut_.blocks) {
      for (const BlockValue& v : block.inputs) ++readers_[v.whole.id()];
    }
    for (const Prediction& p : network.results.predictions) ++readers_[p.value.id()];
    for (const BlockGroup& rows : group_blocks(network, cut_, {}).groups) run(rows);
  }

 private:
  void run(const BlockGroup& rows) {
    if (const PhasedGroup* trained = loop_of(rows)) return run_loop(rows, *trained);
    for (int64_t r = 0; r < rows.rows; ++r)
      run_block(cut_.blocks[rows.first + static_cast<size_t>(r)]);
  }

  const PhasedGroup* loop_of(const BlockGroup& rows) const;
  void run_loop(const BlockGroup& rows, const PhasedGroup& trained);
  void run_block(const BlockGraph& block);

  const std::vector<PhasedGroup>& groups_;
  const nn::NamedTensors& variables_;
  Cut cut_;
  Graph& main_;
  std::map<TensorId, Tensor>& values_;
  std::map<TensorId, int> readers_;  ///< Blocks and results that read a value.
};

// The group that trained these rows, if they can run in a loop: each row gives all its results to
// the next row, and only that row reads them.
const PhasedGroup* PhasedEvaluation::loop_of(const BlockGroup& rows) const {
  std::vector<std::string> names;
  for (int64_t r = 0; r < rows.rows; ++r)
    names.push_back(cut_.blocks[rows.first + static_cast<size_t>(r)].name);
  const auto trained = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const PhasedGroup& g) { return g.blocks == names; });
  if (rows.rows == 1 || trained == groups_.end()) return nullptr;
  for (const GroupInput& input : rows.inputs) {
    if (input.kind == GroupInput::Kind::kSequence) return nullptr;
  }
  const auto chains = std::count_if(rows.inputs.begin(), rows.inputs.end(), [](const auto& i) {
    return i.kind == GroupInput::Kind::kChain;
  });
  for (int64_t r = 0; r < rows.rows; ++r) {
    const BlockGraph& block = cut_.blocks[rows.first + static_cast<size_t>(r)];
    const auto& keys = trained->keys[static_cast<size_t>(r)];
    for (const WeightUse& w : block.weights) {
      if (!keys.contains(w.key)) return nullptr;
    }
    const auto& outputs = block.outputs;
    if (static_cast<int64_t>(outputs.size()) != chains) return nullptr;
    for (const BlockValue& v : outputs) {
      if (r + 1 < rows.rows && readers_.at(v.whole.id()) != 1) return nullptr;
    }
  }
  return &*trained;
}

void PhasedEvaluation::run_loop(const BlockGroup& rows, const PhasedGroup& trained) {
  const BlockGraph& first = cut_.blocks[rows.first];
  const BlockGraph& last = cut_.blocks[rows.first + static_cast<size_t>(rows.rows) - 1];
  Tensors chain;
  Tensors invariants;
  Graph& g = main_.ir().create_empty_graph(first.name);
  TensorMap given;
  std::vector<size_t> outputs;
  for (const auto kind : {GroupInput::Kind::kChain, GroupInput::Kind::kInvariant}) {
    for (size_t i = 0; i < rows.inputs.size(); ++i) {
      if (rows.inputs[i].kind != kind) continue;
      const BlockValue& v = first.inputs[i];
      given.emplace_back(v.part, g.input(v.part.spec(), v.part.name()));
      const bool carried = kind == GroupInput::Kind::kChain;
      (carried ? chain : invariants).push_back(values_.at(v.whole.id()));
      if (carried) outputs.push_back(rows.inputs[i].output);
    }
  }
  nn::NamedTensors weights;
  for (const WeightUse& w : first.weights) {
    const std::string& key = trained.keys[0].at(w.key);
    weights.merge(key, g.input(w.input.spec(), key));
    given.emplace_back(w.input, weights[key]);
  }
  const CallSiteInfo call = first.graph.call_with_info(&g, given);
  for (const size_t o : outputs) g.add_output(call.output(static_cast<int>(o)));
  const Tensors results =
      trained.layer.apply(main_, nn::GraphWithNamedArgs(g, weights), chain, invariants);
  for (size_t i = 0; i < outputs.size(); ++i)
    values_.emplace(last.outputs[outputs[i]].whole.id(), results[i]);
}

void PhasedEvaluation::run_block(const BlockGraph& block) {
  TensorMap given;
  for (const BlockValue& v : block.inputs) given.emplace_back(v.part, values_.at(v.whole.id()));
  for (const WeightUse& w : block.weights)
    given.emplace_back(w.input, find_weight(groups_, main_, w.key, variables_));
  const CallSiteInfo call = block.graph.call_with_info(&main_, given);
  for (size_t i = 0; i < block.outputs.size(); ++i)
    values_.emplace(block.outputs[i].whole.id(), call.output(static_cast<int>(i)));
}

}  // namespace

Tensor find_weight(const std::vector<PhasedGroup>& groups, Graph& graph, const std::string& path,
                   const nn::NamedTensors& variables) {
  for (const PhasedGroup& g : groups) {
    for (size_t r = 0; r < g.keys.size(); ++r) {
      const auto key = g.keys[r].find(path);
      if (key != g.keys[r].end())
        return g.layer.weight(graph, static_cast<int64_t>(r), key->second);
    }
  }
  if (const Tensor* variable = variables.find_leaf(path))
    return graph.ir().share_variable(*variable, graph);
  fail(ErrorKind::kUsage,
       "evaluation: weight '{}' must be trained, but the training network has "
       "no such weight",
       path);
}

void emit_evaluation(const std::vector<PhasedGroup>& groups, const NetworkGraph& network,
                     const nn::NamedTensors& variables, Graph& main,
                     std::map<TensorId, Tensor>& values) {
  PhasedEvaluation(groups, network, variables, main, values);
}

}  // namespace sluice::train
