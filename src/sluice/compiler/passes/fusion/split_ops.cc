#include "sluice/compiler/passes/fusion/split_ops.h"

#include <algorithm>

#include "sluice/base/ids/ids.h"
#include "sluice/compiler/rewriter.h"

namespace sluice::compiler {
namespace {

class Splitter {
 public:
  Splitter(Body& body, const Target& target) : body_(body), target_(target), rewriter_(body) {}

  int64_t run() {
    int64_t changed = 0;
    const auto used = used_outputs(body_);
    auto used_here = used.begin();
    rewriter_.run([&](const Node& node) {
      const std::vector<bool>& outputs = *used_here++;
      const std::vector<OpStage> parts = parts_of(node);
      if (parts.empty() || !is_worth_it(node, parts)) return true;
      rewriter_.split(node, parts, outputs);
      ++changed;
      return false;
    });
    return changed;
  }

 private:
  static bool is_plain(const Node& node) {
    return node.is<Node::Kernel>() && node.ties.empty() && !node.as<Node::Kernel>()->prints &&
           std::all_of(node.out_specs.begin(), node.out_specs.end(),
                       [](const TensorSpec& spec) { return splits_exactly(spec.dtype); });
  }

  static OpView view_of(const Node& node) {
    return {*node.def, node.as<Node::Kernel>()->attrs, node.in_specs, node.out_specs};
  }

  static std::vector<OpStage> parts_of(const Node& node) {
    if (!is_plain(node) || node.def->parts == nullptr) return {};
    return node.def->parts(view_of(node));
  }

  bool is_worth_it(const Node& node, const std::vector<OpStage>& parts) const {
    std::vector<TensorSpec> made;
    for (const OpStage& part : parts) {
      const std::vector<TensorSpec> inputs = specs_of(node, part, made);
      if (std::find(part.inputs.begin(), part.inputs.end(), 0) != part.inputs.end())
        return joins(node, part, inputs) || spreads(node, part, inputs);
      made.push_back(spec_of(part, inputs));
    }
    return false;
  }

  // The specs of a part's operands. `made` has the results of the parts before it.
  static std::vector<TensorSpec> specs_of(const Node& node, const OpStage& part,
                                          const std::vector<TensorSpec>& made) {
    std::vector<TensorSpec> specs;
    for (const int32_t i : part.inputs)
      specs.push_back(i < 0 ? at(made, ~i) : at(node.in_specs, i));
    return specs;
  }

  // Whether one kernel can run `part` and the producer of one of its operands.
  bool joins(const Node& node, const OpStage& part, const std::vector<TensorSpec>& inputs) const {
    for (const int32_t i : part.inputs) {
      if (i < 0) continue;
      const Node* const head = rewriter_.maker(at(node.inputs, i));
      if (head == nullptr || !is_plain(*head) || head->outputs.size() != 1) continue;
      if (target_.fuses(joint(*head, node, part, inputs))) return true;
    }
    return false;
  }

  // Whether the target runs the op in one task, but its part in several.
  bool spreads(const Node& node, const OpStage& part, const std::vector<TensorSpec>& inputs) const {
    const OpView whole = view_of(node);
    if (target_.choose(whole).tasks > 1) return false;
    const TensorSpec made = spec_of(part, inputs);
    return target_.choose(OpView(*part.op, part.attrs, inputs, {&made, 1})).tasks > 1;
  }

  static FusedOp joint(const Node& head, const Node& node, const OpStage& part,
                       const std::vector<TensorSpec>& inputs) {
    FusedOp op;
    op.operands = head.in_specs;
    OpStage first{head.def, head.as<Node::Kernel>()->attrs, {}, -1, head.out_specs[0]};
    for (size_t i = 0; i < head.inputs.size(); ++i) first.inputs.push_back(static_cast<int32_t>(i));
    OpStage second{part.op, part.attrs, {}, -1, {}};
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int32_t from = part.inputs[i];
      const bool made = from >= 0 && at(node.inputs, from) == head.outputs[0];
      second.inputs.push_back(made ? ~0 : static_cast<int32_t>(op.operands.size()));
      if (!made) op.operands.push_back(inputs[i]);
    }
    op.inputs = static_cast<int32_t>(op.operands.size());
    second.spec = spec_of(part, inputs);
    second.output = op.inputs;
    op.operands.push_back(second.spec);
    op.stages = {std::move(first), std::move(second)};
    op.layouts.resize(op.operands.size());
    return op;
  }

  Body& body_;
  const Target& target_;
  Rewriter rewriter_;
};

}  // namespace

int64_t split_ops(Body& body, const Target& target) { return Splitter(body, target).run(); }

}  // namespace sluice::compiler
