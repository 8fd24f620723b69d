// Gradients of ops that run graphs.
#include <algorithm>
#include <array>
#include <map>

#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/transforms/loops/row_loop.h"
#include "sluice/transforms/sweep.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {

// A by-reference operand that the callee does not write keeps its value, and so its gradient.
void Sweep::pass_references(const Op& op) {
  const bool loop = op.def == &builtin::loop();
  if (op.def != &builtin::call() && !loop) return;
  const std::vector<Edge> edges = dependence_.edges(forward_, op);
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const Operand& o = op.inputs[k];
    if (!o.new_version.valid()) continue;
    const Value written{forward_.info(o.tensor).storage, o.new_version};
    const Tensor after = gradients_.at(written);
    if (!after.valid()) continue;
    if (!changes(forward_, op, k)) {
      add_to({written.storage, o.version}, after);
      continue;
    }
    if (loop && row_written(forward_.ir().graph(op.callees[0]), k + 2)) continue;
    for (const Edge& e : edges) {
      require(!(e.made == written && needs(op.inputs[e.input])),
              "autodiff of graph {}: the gradient of '{}' passes {} ({}), which writes to it by "
              "reference; return the "
              "new value as an output instead",
              forward_.name(), forward_.info(o.tensor).name, op.label(), op.provenance->line);
    }
  }
}

Tensors Sweep::arguments(const Op& op, const GradGraphInfo& info, size_t first) {
  const Graph& callee = info.forward_graph();
  const auto& ins = callee.input_ids();
  const auto& outs = callee.output_ids();
  const auto& expected = info.expected_inputs();
  require(info.graph().input_ids().size() == expected.size(),
          "autodiff of graph {}: gradient graph {} of {} cannot be used for a call, because other "
          "transforms added inputs, such as accumulators",
          forward_.name(), info.graph().name(), callee.name());
  Tensors result;
  std::map<TensorId, size_t> taken;  // Occurrences of an output that earlier entries used.
  for (size_t k = 0; k < expected.size(); ++k) {
    const Tensor& t = expected[k].fwd_tensor;
    if (expected[k].type == Connection::kFwd) {
      const size_t i = position(ins, t);
      if (i < ins.size()) {
        const Operand& o = op.inputs[first + i];
        result.push_back(
            kept_.get(o.tensor, o.new_version.valid() ? o.new_version : o.version, op));
      } else {
        const size_t j = position(outs, t);
        require(j < outs.size(),
                "autodiff of graph {}: graph {} must not be both called and the body of a repeat",
                forward_.name(), callee.name());
        result.push_back(kept_.get(op.outputs[j], Version(0), op));
      }
      continue;
    }
    require(position(outs, t) < outs.size(),
            "autodiff of graph {}: gradient graph {} takes the gradient of '{}', which is not "
            "an output of {}",
            forward_.name(), info.graph().name(), t.name(), callee.name());
    const bool last = std::none_of(
        expected.begin() + static_cast<int64_t>(k) + 1, expected.end(),
        [&](const auto& e) { return e.type == Connection::kFwdGrad && e.fwd_tensor == t; });
    Tensor sum;
    size_t occurrence = 0;
    for (size_t j = 0; j < outs.size(); ++j) {
      if (outs[j] != t.id() || occurrence++ < taken[t.id()]) continue;
      const Tensor g = gradient_of(op, j);
      if (g.valid()) sum = sum.valid() ? ops::add(sum, g) : g;
      if (!last) break;
    }
    ++taken[t.id()];
    result.push_back(sum.valid() ? sum : zeros(gradient_, t.spec(), "no_gradient"));
  }
  return result;
}

void Sweep::differentiate_call(const Op& op) {
  const auto found = called_.find(op.callees[0]);
  if (found == called_.end()) return;
  const GradGraphInfo& info = found->second;
  if (given_.contains(op.callees[0])) check_complete(op, info, 0);
  const auto& ins = info.forward_graph().input_ids();
  const Tensors gradients = ops::call(gradient_, info.graph(), arguments(op, info, 0));
  for (size_t k = 0; k < gradients.size(); ++k) {
    const size_t i = position(ins, info.expected_outputs()[k].fwd_tensor);
    if (i >= ins.size() || !needs(op.inputs[i])) continue;
    contribute(op.inputs[i].tensor, value_read(forward_, op.inputs[i]), gradients[k]);
  }
}

// Checks a gradient graph from the user: it must compute the gradient of each operand that needs
// one.
void Sweep::check_complete(const Op& op, const GradGraphInfo& info, size_t first) {
  const auto& on = dependence_.of(info.forward_graph());
  const auto& ins = info.forward_graph().input_ids();
  for (size_t i = 0; i < ins.size(); ++i) {
    if (!needs(op.inputs[first + i])) continue;
    const auto given = [&](const ExpectedConnection& c) { return c.fwd_tensor.id() == ins[i]; };
    if (std::any_of(info.expected_outputs().begin(), info.expected_outputs().end(), given))
      continue;
    for (size_t j = 0; j < on.outputs.size(); ++j) {
      require(!(on.outputs[j].contains(i) && gradient_of(op, j).valid()),
              "autodiff of graph {}: gradient graph {} given for {} has no gradient of '{}'",
              forward_.name(), info.graph().name(), info.forward_graph().name(),
              info.forward_graph().info(ins[i]).name);
    }
  }
}

// Wraps each branch's gradient graph, so that both return gradients of the same operands. A branch
// that does not use an operand returns zeros.
void Sweep::differentiate_branch(const Op& op) {
  const size_t then_inputs = builtin::then_inputs(op);
  const std::array<const GradGraphInfo*, 2> infos = [&] {
    std::array<const GradGraphInfo*, 2> result{};
    for (size_t b = 0; b < 2; ++b) {
      const auto found = called_.find(op.callees[b]);
      if (found != called_.end()) result[b] = &found->second;
    }
    return result;
  }();
  if (infos[0] == nullptr && infos[1] == nullptr) return;

  const std::array<size_t, 2> first{1, 1 + then_inputs};
  std::vector<Operand> targets;
  std::array<std::vector<std::pair<size_t, size_t>>, 2> feeds;  // {gradient graph output, target}
  for (size_t b = 0; b < 2; ++b) {
    if (infos[b] == nullptr) continue;
    if (given_.contains(op.callees[b])) check_complete(op, *infos[b], first[b]);
    const auto& ins = infos[b]->forward_graph().input_ids();
    for (size_t k = 0; k < infos[b]->expected_outputs().size(); ++k) {
      const size_t i = position(ins, infos[b]->expected_outputs()[k].fwd_tensor);
      if (i >= ins.size()) continue;
      const Operand& o = op.inputs[first[b] + i];
      if (!needs(o)) continue;
      auto target = std::find_if(targets.begin(), targets.end(),
                                 [&](const Operand& t) { return t.tensor == o.tensor; });
      if (target == targets.end()) target = targets.insert(target, o);
      feeds[b].emplace_back(k, static_cast<size_t>(target - targets.begin()));
    }
  }
  if (targets.empty()) return;

  Ir ir = forward_.ir();
  std::array<Graph*, 2> wrappers{};
  std::array<Tensors, 2> args;
  for (size_t b = 0; b < 2; ++b) {
    wrappers[b] = &ir.create_empty_graph(ir.graph(op.callees[b]).name() + "_bwd_branch");
    Tensors results(targets.size());
    if (infos[b] != nullptr) {
      args[b] = arguments(op, *infos[b], first[b]);
      Tensors inputs;
      for (const Tensor& t : infos[b]->graph().inputs())
        inputs.push_back(wrappers[b]->input(t.spec(), t.name()));
      const Tensors gradients = ops::call(*wrappers[b], infos[b]->graph(), inputs);
      for (const auto& [k, target] : feeds[b]) {
        Tensor& sum = results[target];
        sum = sum.valid() ? ops::add(sum, gradients[k]) : gradients[k];
      }
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!results[i].valid())
        results[i] = zeros(*wrappers[b], forward_.spec(targets[i].tensor), "no_gradient");
    }
    wrappers[b]->set_outputs(results);
  }
  const Operand& condition = op.inputs[0];
  const Tensors gradients =
      ops::conditional(gradient_, kept_.get(condition.tensor, condition.version, op), *wrappers[0],
                       *wrappers[1], args[0], args[1]);
  for (size_t i = 0; i < targets.size(); ++i) {
    contribute(targets[i].tensor, value_read(forward_, targets[i]), gradients[i]);
  }
}

}  // namespace sluice::transforms
