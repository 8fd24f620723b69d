#include "sluice/compiler/body.h"

#include <fmt/format.h>

#include "sluice/base/error.h"

namespace sluice::compiler {

FusedOp fused_op(const Body& body, const Node& node) {
  FusedOp op;
  op.inputs = static_cast<int32_t>(node.inputs.size());
  op.operands = node.in_specs;
  op.operands.insert(op.operands.end(), node.out_specs.begin(), node.out_specs.end());
  for (const ValueIndex v : node.inputs) op.layouts.push_back(body.value(v).layout);
  for (const ValueIndex v : node.outputs) op.layouts.push_back(body.value(v).layout);
  op.stages = node.stages;
  if (!op.stages.empty()) return op;
  SLUICE_CHECK(node.outputs.size() == 1);
  FusedOp::Stage& stage = op.stages.emplace_back();
  stage.def = node.def;
  stage.attrs = node.attrs;
  for (int32_t i = 0; i < op.inputs; ++i) stage.inputs.push_back(i);
  stage.output = op.inputs;
  stage.spec = node.out_specs[0];
  return op;
}

std::string name_of(const Node& node) {
  if (node.stages.empty()) return node.def == nullptr ? "op" : node.def->type;
  std::string name;
  for (const FusedOp::Stage& stage : node.stages)
    name += (name.empty() ? "" : "+") + stage.def->type;
  return name;
}

std::string to_string(const Body& body) {
  const auto name = [&](ValueIndex v) {
    const BodyValue& value = body.value(v);
    return fmt::format("%{}:{}@{}", v, value.tensor, value.version);
  };
  const auto list = [&](const std::vector<ValueIndex>& values) {
    std::string text;
    for (const ValueIndex v : values)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", name(v));
    return text;
  };
  static constexpr const char* kKinds[] = {"kernel", "view",   "copy",     "call",
                                           "loop",   "branch", "transfer", "wait",
                                           "index",  "send",   "receive",  "collective"};
  std::string text = fmt::format("body {} on device {}\n", body.name, body.device);
  for (const Node& n : body.nodes) {
    text += fmt::format("  {} {} ({}) -> ({})", kKinds[static_cast<size_t>(n.kind)],
                        n.def == nullptr ? "" : fmt::format("{}.{}", name_of(n), n.origin),
                        list(n.inputs), list(n.outputs));
    for (const Tie& t : n.ties) text += fmt::format(" [{} in {}]", t.output, name(t.into));
    text += '\n';
  }
  return text + fmt::format("  results ({})\n", list(body.results));
}

}  // namespace sluice::compiler
