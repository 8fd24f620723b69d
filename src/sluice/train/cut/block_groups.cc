#include "sluice/train/cut/block_groups.h"

#include <algorithm>
#include <set>

#include "sluice/ir/graph.h"
#include "sluice/ir/op_def.h"

namespace sluice::train {
namespace {

// Numbers for the tensors of a graph, in the order of their appearance.
class Numbers {
 public:
  // Returns the line of a new tensor.
  std::string add(const Graph& graph, TensorId t) {
    numbers_.emplace(t, numbers_.size());
    return to_string(graph.spec(t)) + "\n";
  }
  size_t of(TensorId t) const { return numbers_.at(t); }

 private:
  std::map<TensorId, size_t> numbers_;
};

std::string operand_text(const Graph& graph, const Operand& o, const Numbers& numbers) {
  const char* const mode = o.mode == Mode::kRead ? "" : o.mode == Mode::kWrite ? "=" : "+=";
  const auto& constant = graph.info(o.tensor).constant;
  if (!constant) return fmt::format(" {}{}", mode, numbers.of(o.tensor));
  const auto bytes = constant->bytes();
  return fmt::format(" {} '{}'", to_string(constant->spec()),
                     std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string ops_text(const Graph& graph, Numbers& numbers) {
  std::string text;
  for (const Op& op : graph.ops()) {
    text += fmt::format("{} {} on {}", op.def->name, to_string(op.attrs), op.device);
    for (const Operand& o : op.inputs) text += operand_text(graph, o, numbers);
    text += "\n";
    for (const GraphId id : op.callees) {
      const Graph& callee = graph.ir().graph(id);
      Numbers inner;
      text += "{\n";
      for (const TensorId t : callee.input_ids()) text += inner.add(callee, t);
      text += ops_text(callee, inner);
      for (const TensorId t : callee.output_ids()) text += fmt::format("out {}\n", inner.of(t));
      text += "}\n";
    }
    for (const TensorId t : op.outputs) text += numbers.add(graph, t);
  }
  return text;
}

class Grouper {
 public:
  Grouper(const NetworkGraph& network, const Cut& cut, const BlockGradients& gradients,
          const WeightRules& weight_rules, const Ids<BlockId, StageId>& stages)
      : cut_(cut), gradients_(gradients), stages_(stages) {
    stages_.resize(cut.blocks.size(), StageId(0));
    for (const auto& [name, t] : network.fields) fields_.insert(t.id());
    for (const Loss& l : network.results.losses) results_.insert(l.value.id());
    for (const Tensor& sum : network.loss_sums) results_.insert(sum.id());
    for (const Prediction& p : network.results.predictions) results_.insert(p.value.id());
    if (network.total_weight.valid()) results_.insert(network.total_weight.id());
    for (const BlockGraph& block : cut.blocks) {
      structures_.push_back(structure_of(block));
      for (const WeightUse& w : block.weights) {
        if (w.use > 0) tied_.insert(w.key);
        const auto rule = weight_rules.find(w.key);
        structures_.back() += rule == weight_rules.end() ? "untrained\n" : rule->second.text();
      }
    }
    find_values_of_several_stages();
  }

  Grouping run() {
    for (BlockId first(0); cut_.blocks.contains(first);) {
      BlockGroup group = group_from(first);
      first = group.end();
      result_.groups.push_back(std::move(group));
    }
    if (cut_.seeds) place_all(cut_.seeds->outputs);
    for (const BlockGraph& block : cut_.blocks) place_all(block.outputs);
    return std::move(result_);
  }

 private:
  const BlockGraph& block(BlockId b) const { return cut_.blocks[b]; }

  BlockGroup group_from(BlockId first);
  bool stands_alone(BlockId b) const;
  bool equal(BlockId a, BlockId b) const;
  std::string gradient_structure(BlockId b) const;
  std::optional<GroupInput> kind_of(BlockId first, size_t input, BlockId second) const;
  bool fits(const BlockGroup& group, BlockId b) const;
  bool add_value_rows(const BlockGroup& group);
  bool place_chain(const BlockGroup& group, size_t input);
  bool place_sequence(const BlockGroup& group, size_t input);
  void place_next(const Tensor& t);
  void place_all(const std::vector<BlockValue>& values) {
    for (const BlockValue& v : values) {
      if (!result_.value_rows.contains(v.whole.id())) place_next(v.whole);
    }
  }
  int64_t& used(StageId stage, const TensorSpec& spec);
  void find_values_of_several_stages();
  StageId stage_of(const Tensor& t) const {
    const auto maker = makers_.find(t.id());
    return maker == makers_.end() ? StageId(0) : stages_[maker->second];
  }

  const Cut& cut_;
  const BlockGradients& gradients_;
  std::set<TensorId> fields_;
  std::set<TensorId> results_;  ///< Losses, predictions and the total weight.
  std::set<std::string> tied_;
  Ids<BlockId, StageId> stages_;
  std::map<TensorId, BlockId> makers_;
  std::set<TensorId> crossing_;  ///< Values that blocks of several stages make and read.
  Ids<BlockId, std::string> structures_;
  struct Used {
    StageId stage;
    TensorSpec spec;
    int64_t rows;
  };
  std::vector<Used> used_;  ///< Rows in use of each buffer.
  Grouping result_;
};

bool Grouper::stands_alone(BlockId b) const {
  const bool last = BlockId(b + 1) == cut_.blocks.end_id();
  // In training, rows would store their results in one stream.
  const bool returns =
      !gradients_.empty() &&
      std::any_of(block(b).outputs.begin(), block(b).outputs.end(),
                  [&](const BlockValue& v) { return results_.contains(v.whole.id()); });
  const auto crosses = [&](const BlockValue& v) { return crossing_.contains(v.whole.id()); };
  return last || returns ||
         std::any_of(block(b).outputs.begin(), block(b).outputs.end(), crosses) ||
         std::any_of(block(b).inputs.begin(), block(b).inputs.end(), [&](const BlockValue& v) {
           return fields_.contains(v.whole.id()) || crosses(v);
         });
}

// The gradients that a block reads and computes, as indices.
std::string Grouper::gradient_structure(BlockId b) const {
  if (gradients_.empty() || !gradients_[b]) return "";
  const BlockGradient& gradient = *gradients_[b];
  const auto at = [](const std::vector<BlockValue>& list, const Tensor& whole) {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const BlockValue& v) { return v.whole == whole; });
    return found == list.end() ? -1 : static_cast<int64_t>(found - list.begin());
  };
  std::string text = "gradient";
  for (const TakenGradient& t : gradient.taken) {
    text += fmt::format(" {}/{}/{}", at(block(b).outputs, t.value.whole),
                        at(block(b).inputs, t.value.whole),
                        t.loss.valid() ? at(block(b).outputs, t.loss) : -1);
  }
  for (const Tensor& t : gradient.inputs) text += fmt::format(" d{}", at(block(b).inputs, t));
  for (const size_t w : gradient.weights) text += fmt::format(" w{}", w);
  return text;
}

bool Grouper::equal(BlockId a, BlockId b) const {
  if (stages_[a] != stages_[b] || structures_[a] != structures_[b] ||
      gradient_structure(a) != gradient_structure(b))
    return false;
  for (size_t i = 0; i < block(a).weights.size(); ++i) {
    const std::string& key = block(a).weights[i].key;
    const std::string& other = block(b).weights[i].key;
    if ((tied_.contains(key) || tied_.contains(other)) && key != other) return false;
  }
  return true;
}

// The source of an input, judged by the first two rows.
std::optional<GroupInput> Grouper::kind_of(BlockId first, size_t input, BlockId second) const {
  const Tensor a = block(first).inputs[input].whole;
  const Tensor b = block(second).inputs[input].whole;
  if (a == b) return GroupInput{GroupInput::Source::kInvariant};
  const auto& outputs = block(first).outputs;
  const auto made = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const BlockValue& v) { return v.whole == b; });
  if (made == outputs.end()) return GroupInput{GroupInput::Source::kSequence};
  if (a.spec() != b.spec()) return std::nullopt;
  return GroupInput{GroupInput::Source::kChain, static_cast<size_t>(made - outputs.begin())};
}

// Whether block `b` can be the next row of the group.
bool Grouper::fits(const BlockGroup& group, BlockId b) const {
  if (!cut_.blocks.contains(b) || stands_alone(b) || !equal(group.first, b)) return false;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Tensor& t = block(b).inputs[i].whole;
    switch (group.inputs[i].kind) {
      case GroupInput::Source::kInvariant:
        if (t != block(group.first).inputs[i].whole) return false;
        break;
      case GroupInput::Source::kChain:
        if (t != block(BlockId(b - 1)).outputs[group.inputs[i].output].whole) return false;
        break;
      case GroupInput::Source::kSequence:
        for (const BlockId row : IdRange(group.first, b)) {
          if (t == block(row).inputs[i].whole || block(row).output(t).valid()) return false;
        }
        break;
    }
  }
  return true;
}

BlockGroup Grouper::group_from(BlockId first) {
  BlockGroup group{.first = first, .inputs = {}};
  group.inputs.resize(block(first).inputs.size());
  const BlockId second(first + 1);
  if (stands_alone(first) || !cut_.blocks.contains(second) || stands_alone(second) ||
      !equal(first, second))
    return group;
  BlockGroup longer = group;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const auto kind = kind_of(first, i, second);
    if (!kind) return group;
    longer.inputs[i] = *kind;
  }
  while (fits(longer, longer.end())) ++longer.rows;
  // The values of the rows need consecutive buffer rows. Without them, the first block is a group
  // of its own, and the next block begins another group.
  return longer.rows > 1 && add_value_rows(longer) ? longer : group;
}

void Grouper::find_values_of_several_stages() {
  for (const BlockId b : cut_.blocks.ids()) {
    for (const BlockValue& v : block(b).outputs) makers_.emplace(v.whole.id(), b);
    for (const BlockValue& v : block(b).inputs) {
      const auto maker = makers_.find(v.whole.id());
      if (maker != makers_.end() && stages_[maker->second] != stages_[b])
        crossing_.insert(v.whole.id());
    }
  }
}

int64_t& Grouper::used(StageId stage, const TensorSpec& spec) {
  for (Used& u : used_) {
    if (u.stage == stage && u.spec == spec) return u.rows;
  }
  return used_.emplace_back(Used{stage, spec, 0}).rows;
}

void Grouper::place_next(const Tensor& t) {
  const StageId stage = stage_of(t);
  result_.value_rows.emplace(t.id(), ValueRow{t.spec(), used(stage, t.spec())++, stage});
}

// The value that row 0 reads, then the output of each row, in consecutive rows.
bool Grouper::place_chain(const BlockGroup& group, size_t input) {
  const Tensor& outer = block(group.first).inputs[input].whole;
  const auto known = result_.value_rows.find(outer.id());
  if (known == result_.value_rows.end()) {
    place_next(outer);
  } else if (known->second.row + 1 != used(known->second.stage, outer.spec())) {
    return false;
  }
  if (stage_of(outer) != stages_[group.first]) return false;
  for (int64_t r = 0; r < group.rows; ++r) {
    const BlockGraph& row = block(group.block(r));
    const Tensor& made = row.outputs[group.inputs[input].output].whole;
    if (result_.value_rows.contains(made.id())) return false;
    place_next(made);
  }
  return true;
}

bool Grouper::place_sequence(const BlockGroup& group, size_t input) {
  for (int64_t r = 0; r < group.rows; ++r) {
    const Tensor& t = block(group.block(r)).inputs[input].whole;
    if (result_.value_rows.contains(t.id())) return false;
    place_next(t);
  }
  return true;
}

bool Grouper::add_value_rows(const BlockGroup& group) {
  const auto value_rows = result_.value_rows;
  const auto used = used_;
  bool placed = true;
  for (size_t i = 0; placed && i < group.inputs.size(); ++i) {
    if (group.inputs[i].kind == GroupInput::Source::kChain) placed = place_chain(group, i);
    if (group.inputs[i].kind == GroupInput::Source::kSequence) placed = place_sequence(group, i);
  }
  // Outputs that the next row does not read have consecutive buffer rows, too.
  for (size_t o = 0; placed && o < block(group.first).outputs.size(); ++o) {
    if (result_.value_rows.contains(block(group.first).outputs[o].whole.id())) continue;
    for (int64_t r = 0; r < group.rows; ++r) place_next(block(group.block(r)).outputs[o].whole);
  }
  if (placed) return true;
  result_.value_rows = value_rows;
  used_ = used;
  return false;
}

}  // namespace

std::string structure_of(const Graph& graph) {
  Numbers numbers;
  std::string text;
  for (const TensorId t : graph.input_ids()) text += numbers.add(graph, t);
  text += ops_text(graph, numbers);
  for (const TensorId t : graph.output_ids()) text += fmt::format("out {}\n", numbers.of(t));
  return text;
}

std::string structure_of(const BlockGraph& block) {
  const Graph& g = block.graph.graph();
  Numbers numbers;
  std::string text;
  for (const BlockValue& v : block.inputs) text += numbers.add(g, v.part.id());
  text += "weights\n";
  for (const WeightUse& w : block.weights) text += numbers.add(g, w.input.id());
  text += ops_text(g, numbers);
  for (const BlockValue& v : block.outputs)
    text += fmt::format("out {}\n", numbers.of(v.part.id()));
  for (const RunningUse& u : block.updates) {
    text += fmt::format("update {} {} {} {}\n", to_string(u.spec), numbers.of(u.value.part.id()),
                        u.rule.keep, u.rule.take);
  }
  return text;
}

Grouping group_blocks(const NetworkGraph& network, const Cut& cut, const BlockGradients& gradients,
                      const WeightRules& weight_rules, const Ids<BlockId, StageId>& stages) {
  return Grouper(network, cut, gradients, weight_rules, stages).run();
}

}  // namespace sluice::train
