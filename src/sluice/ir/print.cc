#include "sluice/ir/print.h"

#include <unordered_map>

#include "sluice/ir/builtin.h"

namespace sluice {
namespace {

// Numbers tensors %1, %2, … in the order in which they are first mentioned.
class LocalIds {
 public:
  std::string operator()(TensorId id) {
    const auto [place, fresh] = ids_.try_emplace(id, ids_.size() + 1);
    return fmt::format("%{}", place->second);
  }

 private:
  std::unordered_map<TensorId, size_t> ids_;
};

std::string operand_list(const Graph& graph, const std::vector<TensorId>& tensors, LocalIds& ids) {
  std::string text;
  for (const TensorId t : tensors) {
    const TensorSpec& spec = graph.spec(t);
    text += fmt::format("{}{} [{} {}]", text.empty() ? "" : ", ", ids(t), to_string(spec.shape),
                        name_of(spec.dtype));
  }
  return "(" + text + ")";
}

}  // namespace

std::string print_schedule(const Graph& graph,
                           const std::vector<std::pair<std::string, Tensor>>& named) {
  LocalIds ids;
  std::string inputs;
  for (const TensorId t : graph.input_ids()) {
    std::string key;
    for (const auto& [name, tensor] : named) {
      if (tensor.id() == t && tensor.graph_id() == graph.id()) {
        key = name + "=";
        break;
      }
    }
    inputs += fmt::format("{}{}{}", inputs.empty() ? "" : ", ", key, ids(t));
  }
  std::string body;
  for (const Op& op : graph.ops()) {
    std::vector<TensorId> operands;
    for (const Operand& o : op.inputs) operands.push_back(o.tensor);
    std::string callee;
    if (op.callees.size() == 1)
      callee = fmt::format("({})", graph.ir().graph(op.callees[0]).name());
    const std::string ins = operand_list(graph, operands, ids);
    body += fmt::format("{}    {}{} {} -> {}", body.empty() ? "" : "\n", op.label(), callee, ins,
                        operand_list(graph, op.outputs, ids));
  }
  if (body.empty()) body = "    ";
  std::string outputs;
  for (const TensorId t : graph.output_ids())
    outputs += fmt::format("{}{}", outputs.empty() ? "" : ", ", ids(t));
  return fmt::format("Graph : {}\n  ({}) -> ({}) {{\n{}\n  }}", graph.name(), inputs, outputs,
                     body);
}

std::string to_dot(const Graph& graph) {
  std::string text =
      fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=monospace];\n", graph.name());
  const auto source = [&](TensorId t) {
    const TensorInfo& info = graph.info(t);
    return info.producer >= 0 ? fmt::format("op{}", info.producer) : fmt::format("t{}", t);
  };
  for (TensorId t = 0; t < graph.tensor_count(); ++t) {
    const TensorInfo& info = graph.info(t);
    if (info.producer < 0) {
      text += fmt::format("  t{} [label=\"{} {}\", shape=ellipse];\n", t, info.name,
                          to_string(info.spec));
    }
  }
  for (const Op& op : graph.ops()) {
    text += fmt::format("  op{} [label=\"{}\"];\n", op.id, op.label());
    for (const Operand& o : op.inputs) {
      text += fmt::format("  {} -> op{} [label=\"{} v{}\"];\n", source(o.tensor), op.id,
                          graph.info(o.tensor).name, o.version);
    }
  }
  for (const TensorId t : graph.output_ids()) {
    text += fmt::format("  out{0} [label=\"{1}\", shape=ellipse];\n  {2} -> out{0};\n", t,
                        graph.info(t).name, source(t));
  }
  return text + "}\n";
}

}  // namespace sluice
