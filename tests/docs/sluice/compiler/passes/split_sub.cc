#include "sluice/compiler/passes/split_sub.h"

#include "sluice/compiler/rewriter.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::compiler {
namespace {

bool is_sub(const Node& node) {
  return node.is<Node::Kernel>() && !node.has_stages() && node.ties.empty() &&
         node.def == &ops::sub_def() && node.outputs[0] != kNone;
}

}  // namespace

int64_t split_sub(Body& body) {
  // Operand i is input i of the node; ~0 is the result of part 0. The second part makes output 0.
  const std::vector<OpStage> parts{{.op = &ops::neg_def(), .inputs = {1}},
                                   {.op = &ops::add_def(), .inputs = {0, ~0}, .output = 0}};
  int64_t changes = 0;
  Rewriter rewriter(body);
  rewriter.run([&](const Node& node) {
    if (!is_sub(node)) return true;  // The node stays.
    rewriter.split(node, parts);     // Its parts take its place.
    ++changes;
    return false;
  });
  return changes;
}

}  // namespace sluice::compiler
