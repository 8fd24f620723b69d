#include <algorithm>

#include "sluice/base/provenance.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

void check_call(const CallSiteInfo& call, const Graph& graph, std::string_view what) {
  require(&call.called_graph() == &graph && call.parent().ir().id() == graph.ir().id(),
          "{}: the call must be of graph {}, got a call of {}", what, graph.name(),
          call.called_graph().name());
}

// Checks that the call's tensor still holds the value that the call read or wrote.
void check_unchanged(const CallSiteInfo& call, const Tensor& t, Version version) {
  const Graph& parent = call.parent();
  const Storage& storage = parent.storage(parent.info(t).storage);
  version = same_contents(parent, parent.info(t).storage, version).last;
  if (storage.version() == version) return;
  const Op& writer = parent.op(storage.writers[Version(version + 1)].op);
  fail(ErrorKind::kUsage,
       "inputs_dict: the gradient needs tensor '{}' as it was at {}, but {} ({}) in graph {} has "
       "overwritten it; pass a copy to the call",
       t.name(), call.op().label(), writer.label(), writer.provenance->line, parent.name());
}

}  // namespace

GradGraphInfo::GradGraphInfo(Graph& forward_graph, Graph& graph,
                             std::vector<ExpectedConnection> expected_inputs,
                             std::vector<ExpectedConnection> expected_outputs, size_t first_input)
    : ir_(forward_graph.ir()),
      forward_graph_(forward_graph.id()),
      graph_(graph.id()),
      expected_inputs_(std::move(expected_inputs)),
      expected_outputs_(std::move(expected_outputs)),
      first_input_(first_input) {
  require(graph.input_ids().size() >= first_input_ + expected_inputs_.size() &&
              graph.output_ids().size() == expected_outputs_.size(),
          "gradient graph {} must have {} inputs and {} outputs, got {} and {}", graph.name(),
          first_input_ + expected_inputs_.size(), expected_outputs_.size(),
          graph.input_ids().size(), graph.output_ids().size());
}

Tensors GradGraphInfo::inputs() const {
  Tensors result;
  for (const ExpectedConnection& c : expected_inputs_) result.push_back(c.fwd_tensor);
  return result;
}

Tensors GradGraphInfo::outputs() const {
  Tensors result;
  for (const ExpectedConnection& c : expected_outputs_) result.push_back(c.fwd_tensor);
  return result;
}

TensorMap GradGraphInfo::inputs_dict(const CallSiteInfo& fwd_call) const {
  check_call(fwd_call, forward_graph(), "inputs_dict");
  TensorMap result;
  for (size_t k = 0; k < expected_inputs_.size(); ++k) {
    const auto& [type, t] = expected_inputs_[k];
    if (type != Connection::kFwd) continue;
    const size_t i = position(forward_graph().input_ids(), t);
    Tensor parent;
    Version version{0};
    if (i < forward_graph().input_ids().size()) {
      const Operand& o = fwd_call.op().inputs[i];
      parent = fwd_call.input(static_cast<int>(i));
      version = o.new_version.valid() ? o.new_version : o.version;
    } else {
      parent = fwd_call.graph_to_parent(t);
    }
    check_unchanged(fwd_call, parent, version);
    result.emplace_back(graph().handle(graph().input_ids()[first_input_ + k]), parent);
  }
  return result;
}

std::unordered_map<Tensor, Tensor> GradGraphInfo::fwd_graph_ins_to_grad_parent_outs(
    const CallSiteInfo& grad_call) const {
  check_call(grad_call, graph(), "fwd_graph_ins_to_grad_parent_outs");
  std::unordered_map<Tensor, Tensor> result;
  for (size_t k = 0; k < expected_outputs_.size(); ++k) {
    const Tensor& t = expected_outputs_[k].fwd_tensor;
    if (position(forward_graph().input_ids(), t) == forward_graph().input_ids().size()) continue;
    result.emplace(t, grad_call.output(static_cast<int>(k)));
  }
  return result;
}

std::unordered_map<Tensor, Tensor> GradGraphInfo::fwd_parent_ins_to_grad_parent_outs(
    const CallSiteInfo& fwd_call, const CallSiteInfo& grad_call) const {
  check_call(fwd_call, forward_graph(), "fwd_parent_ins_to_grad_parent_outs");
  const auto of_input = fwd_graph_ins_to_grad_parent_outs(grad_call);
  std::unordered_map<Tensor, Tensor> result;
  const Tensors inputs = forward_graph().inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto found = of_input.find(inputs[i]);
    if (found == of_input.end()) continue;
    Tensor& sum = result[fwd_call.input(static_cast<int>(i))];
    sum = sum.valid() ? ops::add(sum, found->second) : found->second;
  }
  return result;
}

std::string to_string(const GradGraphInfo& info) {
  const auto list = [](const std::vector<ExpectedConnection>& connections) {
    std::string text;
    for (const auto& [type, t] : connections) {
      text += fmt::format("{}({}, {})", text.empty() ? "" : ", ",
                          type == Connection::kFwd ? "Fwd" : "FwdGrad", to_string(t));
    }
    return text;
  };
  return fmt::format(
      "GradGraphInfo[\n  graph={}\n  expected_inputs=[{}]\n  expected_outputs=[{}]\n]",
      info.graph().name(), list(info.expected_inputs()), list(info.expected_outputs()));
}

}  // namespace sluice::transforms
