#include "sluice/base/ids/ids_format.h"
#include "sluice/ir/ir.h"

#include <set>
#include <unordered_map>

#include "sluice/ir/builtin.h"

namespace sluice {
namespace {

// Numbers tensors %1, %2, … in the order in which they are first mentioned.
class LocalIds {
 public:
  std::string operator()(TensorId id) {
    const auto [found, fresh] = ids_.try_emplace(id, ids_.size() + 1);
    return fmt::format("%{}", found->second);
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

namespace {

// A quoted string of the DOT language.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The node of the op that made a version of a tensor; the tensor's own node if no op did.
std::string source(const Graph& graph, TensorId t, Version version) {
  const TensorInfo& info = graph.info(t);
  const Storage& storage = graph.storage(info.storage);
  const OpId writer = info.version == version ? info.producer : storage.writers[version].op;
  return writer.valid() ? fmt::format("op{}", writer)
                        : fmt::format("g{}t{}", graph.id(), storage.root);
}

std::string cluster(const Graph& graph) {
  std::string text =
      fmt::format("  subgraph cluster_{} {{\n    label={};\n", graph.id(), quoted(graph.name()));
  for (const TensorId t : graph.tensors().ids()) {
    const TensorInfo& info = graph.info(t);
    if (info.producer.valid()) continue;
    text += fmt::format("    g{}t{} [label={}, shape=ellipse];\n", graph.id(), t,
                        quoted(info.name + " " + to_string(info.spec)));
  }
  for (const Op& op : graph.ops()) {
    std::string label = op.label();
    for (const GraphId callee : op.callees) label += " " + graph.ir().graph(callee).name();
    text += fmt::format("    op{} [label={}];\n", op.id, quoted(label));
    for (const Operand& o : op.inputs) {
      text += fmt::format("    {} -> op{} [label={}];\n", source(graph, o.tensor, o.version), op.id,
                          quoted(graph.info(o.tensor).name));
    }
  }
  for (const TensorId t : graph.output_ids()) {
    text += fmt::format("    g{0}out{1} [label={2}, shape=ellipse];\n    {3} -> g{0}out{1};\n",
                        graph.id(), t, quoted(graph.info(t).name),
                        source(graph, t, graph.storage(graph.info(t).storage).version()));
  }
  return text + "  }\n";
}

void add_clusters(const Graph& graph, std::set<GraphId>& seen, std::string& text) {
  if (!seen.insert(graph.id()).second) return;
  text += cluster(graph);
  for (const Op& op : graph.ops()) {
    for (const GraphId callee : op.callees) add_clusters(graph.ir().graph(callee), seen, text);
  }
}

}  // namespace

std::string to_dot(const Ir& ir) {
  std::string text = "digraph {\n  node [shape=box, fontname=monospace];\n";
  std::set<GraphId> seen;
  for (const auto& [name, id] : ir.entries()) add_clusters(ir.graph(id), seen, text);
  return text + "}\n";
}

}  // namespace sluice
