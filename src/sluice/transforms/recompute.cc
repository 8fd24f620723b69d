#include "sluice/transforms/recompute.h"

#include <algorithm>
#include <set>

#include "sluice/base/provenance.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

void check_repeatable(const Graph& graph, const Graph& forward, std::set<GraphId>& seen) {
  if (!seen.insert(graph.id()).second) return;
  for (const Op& op : graph.ops()) {
    for (const Effect& e : op.effects) {
      const bool once = e.kind == Effect::Action::kStreamRead ||
                        e.kind == Effect::Action::kStreamWrite ||
                        e.kind == Effect::Action::kRemoteStore;
      require(!once, "recompute of graph {}: {} ({}) in graph {} must not run twice",
              forward.name(), op.label(), op.provenance->line, graph.name());
    }
    for (const GraphId callee : op.callees)
      check_repeatable(graph.ir().graph(callee), forward, seen);
  }
}

bool by_name(const Tensor& a, const Tensor& b) { return a.name() < b.name(); }

}  // namespace

RecomputeResult recompute_graph(const GradGraphInfo& info) {
  Graph& forward = info.forward_graph();
  Graph& gradient = info.graph();
  std::set<GraphId> seen;
  check_repeatable(forward, forward, seen);
  for (size_t i = 0; i < forward.input_ids().size(); ++i) {
    const TensorInfo& input = forward.info(forward.input_ids()[i]);
    require(input.pass == Pass::kByValue || !writes_input(forward, i),
            "recompute of graph {}: it writes its input '{}', which is passed by reference",
            forward.name(), input.name);
  }

  Graph& graph = forward.ir().create_empty_graph(base_name(gradient.name()) + "_recomp");
  const Tensors forward_inputs = forward.inputs();
  const Tensors gradient_inputs = gradient.inputs();
  const auto is_forward_input = [&](const Tensor& t) {
    return std::find(forward_inputs.begin(), forward_inputs.end(), t) != forward_inputs.end();
  };
  TensorMap to_forward;
  TensorMap to_gradient;
  TensorMap mapped;
  std::vector<ExpectedConnection> expected;
  const auto add = [&](const Tensor& like, Pass pass) {
    return graph.input(like.spec(), like.name(), pass);
  };

  const size_t connected = info.expected_inputs().size();
  for (size_t k = 0; k < connected; ++k) {
    const auto& [type, t] = info.expected_inputs()[k];
    if (type == Connection::kFwd && !is_forward_input(t)) continue;
    const Pass pass = type == Connection::kFwd ? forward.info(t).pass : Pass::kByValue;
    const Tensor input = add(gradient_inputs[k], pass);
    (type == Connection::kFwd ? to_forward : to_gradient)
        .emplace_back(type == Connection::kFwd ? t : gradient_inputs[k], input);
    mapped.emplace_back(gradient_inputs[k], input);
    expected.push_back({type, t});
  }
  Tensors others;
  for (const Tensor& t : forward_inputs) {
    const bool there = std::any_of(to_forward.begin(), to_forward.end(),
                                   [&](const auto& p) { return p.first == t; });
    if (!there) others.push_back(t);
  }
  std::sort(others.begin(), others.end(), by_name);
  for (const Tensor& t : others) {
    to_forward.emplace_back(t, add(t, forward.info(t).pass));
    expected.push_back({Connection::kFwd, t});
  }
  Tensors added(gradient_inputs.begin() + static_cast<int64_t>(connected), gradient_inputs.end());
  std::sort(added.begin(), added.end(), by_name);
  for (const Tensor& t : added) {
    to_gradient.emplace_back(t, add(t, gradient.info(t).pass));
    mapped.push_back(to_gradient.back());
  }

  const CallSiteInfo call = [&] {
    const Graph::ProvenanceScope scope(graph, {.role = OpRole::kRecomputation});
    return ops::call_with_info(graph, forward, {}, to_forward);
  }();
  const TensorMap activations = info.inputs_dict(call);
  to_gradient.insert(to_gradient.end(), activations.begin(), activations.end());
  graph.set_outputs(ops::call(graph, gradient, {}, to_gradient));
  verify_transformed(graph);
  return {GradGraphInfo(forward, graph, std::move(expected), info.expected_outputs()),
          std::move(mapped)};
}

}  // namespace sluice::transforms
