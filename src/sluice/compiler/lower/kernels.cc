#include "sluice/compiler/lower/kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/exe/validate.h"
#include "sluice/ops/flops.h"

namespace sluice::compiler {
namespace {

KernelChoice choose_copy(const Body& body, const Node& node, const Target& target) {
  return target.copy(node.in_specs[0], body.value(node.inputs[0]).layout,
                     body.value(node.outputs[0]).layout);
}

int64_t bounded(double flops) {
  return static_cast<int64_t>(std::min(flops, static_cast<double>(exe::kMaxSize)));
}

KernelChoice choose_fused(const FusedOp& op, const Target& target) {
  KernelChoice choice = target.choose_fused(op);
  double flops = 0;
  for (const OpStage& stage : op.stages) {
    const std::vector<TensorSpec> inputs = op.input_specs(stage);
    flops += flops_of(OpView(*stage.op, stage.attrs, inputs, {&stage.spec, 1}));
  }
  choice.flops = bounded(flops);
  return choice;
}

KernelChoice choose(const OpView& op, const Target& target) {
  KernelChoice choice = target.choose(op);
  choice.flops = bounded(flops_of(op));
  return choice;
}

KernelChoice choose(const Body& body, const Node& node, const Target& target) {
  if (node.is<Node::Copy>()) return choose_copy(body, node, target);
  if (node.is<Node::Index>()) return {.key = target.kind() + ".index"};
  if (node.is<Node::Collective>()) return {.may_coincide = node.def->may_coincide};
  const auto* kernel = node.as<Node::Kernel>();
  if (kernel == nullptr) return {};
  try {
    if (!kernel->stages.empty()) return choose_fused(fused_op(body, node), target);
    return choose(OpView(*node.def, kernel->attrs, node.in_specs, node.out_specs), target);
  } catch (Error& e) {
    throw e.note(fmt::format("choosing a kernel for {}.{} made at {}", name_of(node), node.origin,
                             node.where()));
  }
}

}  // namespace

int64_t choose_kernels(const Body& body, const Target& target, LoweredBody& lowered) {
  for (const Node& node : body.nodes) lowered.choices.push_back(choose(body, node, target));
  return static_cast<int64_t>(body.nodes.size());
}

int64_t choose_copies(const Body& body, const Target& target, LoweredBody& lowered) {
  int64_t copies = 0;
  for (const NodeId n : body.nodes.ids()) {
    if (!body.nodes[n].is<Node::Copy>()) continue;
    lowered.choices[n] = choose_copy(body, body.nodes[n], target);
    ++copies;
  }
  return copies;
}

}  // namespace sluice::compiler
