#include "sluice/compiler/passes/double_neg.h"

#include "sluice/ops/arithmetic.h"

namespace sluice::compiler {
namespace {

bool is_neg(const Node& node) {
  return node.is<Node::Kernel>() && !node.has_stages() && node.ties.empty() &&
         node.def == &ops::neg_def() && node.outputs[0] != kNone;
}

}  // namespace

int64_t remove_double_neg(Body& body) {
  std::vector<const Node*> neg(body.values.size(), nullptr);  // The node that makes a value.
  std::vector<bool> overwritten(body.values.size(), false);   // A node before this one computes it.
  int64_t views = 0;
  for (Node& node : body.nodes) {
    if (is_neg(node)) {
      const Node* const inner = neg[static_cast<size_t>(node.inputs[0])];
      if (inner != nullptr && !overwritten[static_cast<size_t>(inner->inputs[0])]) {
        node.what = Node::View{};
        node.inputs = inner->inputs;
        node.in_specs = inner->in_specs;
        ++views;
      } else {
        neg[static_cast<size_t>(node.outputs[0])] = &node;
      }
    }
    for (const Tie& t : node.ties) overwritten[static_cast<size_t>(t.into)] = true;
  }
  return views;
}

}  // namespace sluice::compiler
