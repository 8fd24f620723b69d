#include "sluice/compiler/passes/fusion/split_ops.h"

#include <algorithm>

namespace sluice::compiler {
namespace {

class Splitter {
 public:
  Splitter(Body& body, const Target& target)
      : body_(body), target_(target), maker_(body.values.size(), -1) {}

  int64_t run() {
    int64_t changed = 0;
    const auto used = used_outputs(body_);
    std::vector<Node> nodes = std::move(body_.nodes);
    body_.nodes.clear();
    for (size_t n = 0; n < nodes.size(); ++n) {
      const std::vector<OpStage> parts = parts_of(nodes[n]);
      if (parts.empty() || !is_worth_it(nodes[n], parts)) {
        push(std::move(nodes[n]));
        continue;
      }
      split(nodes[n], parts, used[n]);
      ++changed;
    }
    return changed;
  }

 private:
  static bool is_plain(const Node& node) {
    return node.is<Node::Kernel>() && node.ties.empty() && !node.as<Node::Kernel>()->prints &&
           std::all_of(node.out_specs.begin(), node.out_specs.end(),
                       [](const TensorSpec& spec) { return spec.dtype == f32; });
  }

  static OpView view_of(const Node& node) {
    return {*node.def, node.as<Node::Kernel>()->attrs, node.in_specs, node.out_specs};
  }

  static std::vector<OpStage> parts_of(const Node& node) {
    if (!is_plain(node) || node.def->parts == nullptr) return {};
    return node.def->parts(view_of(node));
  }

  void push(Node node) {
    for (const ValueIndex v : node.outputs) {
      if (v != kNone && static_cast<size_t>(v) < maker_.size())
        maker_[static_cast<size_t>(v)] = static_cast<int32_t>(body_.nodes.size());
    }
    body_.nodes.push_back(std::move(node));
  }

  static TensorSpec spec_of(const OpStage& part, const std::vector<TensorSpec>& inputs) {
    return part.op->infer(OpView(*part.op, part.attrs, inputs))[0];
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
      specs.push_back(i < 0 ? made[static_cast<size_t>(~i)]
                            : node.in_specs[static_cast<size_t>(i)]);
    return specs;
  }

  // Whether one kernel can run `part` and the producer of one of its operands.
  bool joins(const Node& node, const OpStage& part, const std::vector<TensorSpec>& inputs) const {
    for (const int32_t i : part.inputs) {
      if (i < 0) continue;
      const ValueIndex v = node.inputs[static_cast<size_t>(i)];
      const int32_t maker = maker_[static_cast<size_t>(v)];
      if (maker < 0) continue;
      const Node& head = body_.nodes[static_cast<size_t>(maker)];
      if (!is_plain(head) || head.outputs.size() != 1) continue;
      if (target_.fuses(joint(head, node, part, inputs))) return true;
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
      const bool made = from >= 0 && node.inputs[static_cast<size_t>(from)] == head.outputs[0];
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

  // Replaces an op by those parts that its used results need.
  void split(const Node& node, const std::vector<OpStage>& parts, const std::vector<bool>& used) {
    std::vector<bool> needed(parts.size(), false);
    for (size_t p = parts.size(); p-- > 0;) {
      const int32_t output = parts[p].output;
      needed[p] = needed[p] || (output >= 0 && used[static_cast<size_t>(output)]);
      for (const int32_t i : parts[p].inputs) {
        if (needed[p] && i < 0) needed[static_cast<size_t>(~i)] = true;
      }
    }
    std::vector<ValueIndex> made(parts.size(), kNone);
    for (size_t p = 0; p < parts.size(); ++p) {
      if (!needed[p]) continue;
      const OpStage& part = parts[p];
      Node own = node;
      own.def = part.op;
      own.what = Node::Kernel{part.attrs};
      if (part.op->has(Trait::kView)) own.what = Node::View{};
      own.inputs.clear();
      own.in_specs.clear();
      for (const int32_t i : part.inputs) {
        const ValueIndex v =
            i < 0 ? made[static_cast<size_t>(~i)] : node.inputs[static_cast<size_t>(i)];
        own.inputs.push_back(v);
        own.in_specs.push_back(i < 0 ? body_.value(v).spec : node.in_specs[static_cast<size_t>(i)]);
      }
      own.out_specs = {spec_of(part, own.in_specs)};
      if (part.output >= 0) {
        made[p] = node.outputs[static_cast<size_t>(part.output)];
      } else {
        BodyValue value;
        value.tensor = fmt::format("{} of {}", part.op->name, node.where());
        value.spec = own.out_specs[0];
        made[p] = body_.add(std::move(value));
      }
      own.outputs = {made[p]};
      push(std::move(own));
    }
  }

  Body& body_;
  const Target& target_;
  std::vector<int32_t> maker_;  // For each value: index of its node.
};

}  // namespace

int64_t split_ops(Body& body, const Target& target) { return Splitter(body, target).run(); }

}  // namespace sluice::compiler
