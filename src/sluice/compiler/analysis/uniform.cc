#include "sluice/compiler/analysis/uniform.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/builtin.h"
#include "sluice/ops/collectives.h"

namespace sluice::compiler {
namespace {

// A cause for which a value may differ between replicas; empty if it is equal on all of them.
using Cause = std::string;

const Cause& first_cause(const std::vector<Cause>& causes) {
  static const Cause kNone;
  const auto found =
      std::find_if(causes.begin(), causes.end(), [](const Cause& c) { return !c.empty(); });
  return found == causes.end() ? kNone : *found;
}

class UniformValues {
 public:
  explicit UniformValues(const Ir& ir) : ir_(ir) {}

  // A variable that one program updates differently is different in all of them.
  void check() {
    for (bool changed = true; changed;) {
      const size_t before = variables_.size();
      for (const auto& [name, id] : ir_.entries()) run(ir_.graph(id), {});
      changed = variables_.size() != before;
    }
  }

 private:
  // Causes of a graph's values, by storage.
  struct State {
    const Graph& graph;
    Ids<StorageId, Cause> causes;
    Cause& of(TensorId t) { return causes[graph.info(t).storage]; }
  };
  struct Results {
    std::vector<Cause> outputs;
    std::vector<Cause> inputs;  // Causes of the inputs after the call, by reference.
  };

  Cause initial(const TensorInfo& info) const {
    if (info.variable == nullptr) return {};
    const auto known = variables_.find(info.variable.get());
    if (known != variables_.end()) return known->second;
    const auto& group = info.variable->group;
    const bool equal = info.variable->shard == 0 && (!group || group->size() == ir_.replication());
    return equal ? Cause{} : fmt::format("variable '{}'", info.name);
  }

  // Subgraphs have no variables, so their results depend on their inputs alone.
  const Results& run_callee(GraphId id, std::vector<Cause> inputs) {
    const std::pair key(id, std::move(inputs));
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    return known_[key] = run(ir_.graph(id), key.second);
  }

  Results run(const Graph& graph, const std::vector<Cause>& inputs) {
    State s{graph, Ids<StorageId, Cause>(graph.storages().size())};
    for (const TensorId t : graph.tensors().ids()) {
      if (graph.info(t).kind == TensorKind::kVariable) s.of(t) = initial(graph.info(t));
    }
    for (size_t i = 0; i < inputs.size(); ++i) s.of(graph.input_ids()[i]) = inputs[i];
    for (const Op& op : graph.ops()) visit(s, op);
    for (const TensorId t : graph.tensors().ids()) {
      const TensorInfo& info = graph.info(t);
      if (info.kind == TensorKind::kVariable && !s.of(t).empty() && initial(info).empty())
        variables_[info.variable.get()] = s.of(t);
    }
    Results results;
    for (const TensorId t : graph.output_ids()) results.outputs.push_back(s.of(t));
    for (const TensorId t : graph.input_ids()) results.inputs.push_back(s.of(t));
    return results;
  }

  std::vector<Cause> operands(State& s, const Op& op) {
    std::vector<Cause> causes;
    for (const Operand& o : op.inputs) causes.push_back(s.of(o.tensor));
    return causes;
  }

  void visit(State& s, const Op& op) {
    if (op.def == &builtin::call()) {
      return finish(s, op, 0, run_callee(op.callees[0], operands(s, op)));
    }
    if (op.def == &builtin::loop()) return loop(s, op);
    if (op.def == &builtin::branch()) return branch(s, op);
    set_all(s, op, cause_of(s, op));
  }

  Cause cause_of(State& s, const Op& op) {
    for (const Effect& e : op.effects) {
      if (e.kind == Effect::Action::kStreamRead)
        return fmt::format("stream '{}'", ir_.stream(e.id).name);
      if (e.kind == Effect::Action::kRemoteLoad) return "a remote buffer";
    }
    Cause cause = first_cause(operands(s, op));
    if (!op.def->has(Trait::kCollective)) return cause;
    const bool equal = op.def == &ops::replicated_all_reduce_def() ||
                       op.def == &ops::replicated_all_reduce_in_place_def() ||
                       op.def == &ops::replicated_all_reduce_identical_inputs_def() ||
                       op.def == &ops::replicated_all_reduce_identical_grad_inputs_def() ||
                       op.def == &ops::replicated_all_gather_def();
    if (!equal) return op.label();
    const bool all = ops::collective_group(op.attrs, ir_.replication()).size() == ir_.replication();
    return all ? Cause{} : cause;
  }

  static void set_all(State& s, const Op& op, const Cause& cause) {
    for (const TensorId t : op.outputs) s.of(t) = cause;
    for (const Operand& o : op.inputs) {
      if (o.mode != Mode::kRead) s.of(o.tensor) = cause;
    }
  }

  // Takes the results of a callee whose first `skipped` inputs have no operand.
  static void finish(State& s, const Op& op, size_t skipped, const Results& results) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].mode != Mode::kRead) s.of(op.inputs[i].tensor) = results.inputs[i + skipped];
    }
    for (size_t k = 0; k < op.outputs.size(); ++k) s.of(op.outputs[k]) = results.outputs[k];
  }

  static void join(Cause& into, const Cause& other) {
    if (into.empty()) into = other;
  }

  void loop(State& s, const Op& op) {
    constexpr int kSkipped = 2;  // The iteration and keep-going.
    const auto options = from_attrs<builtin::LoopOptions>(op.attrs);
    const size_t carried = builtin::carried(op);
    std::vector<Cause> in = operands(s, op);
    in.insert(in.begin(), kSkipped, {});
    for (;;) {
      const std::vector<Cause> before = in;
      const Results once = run_callee(op.callees[0], in);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i].mode != Mode::kRead) join(in[i + kSkipped], once.inputs[i + kSkipped]);
        if (i < carried) join(in[i + kSkipped], once.outputs[i]);
      }
      if (in != before) continue;
      if (options.condition >= 0) {
        const Cause& condition = at(in, options.condition + kSkipped);
        require(condition.empty(),
                "{} made at {}: the condition '{}' must be equal on all replicas, got one that "
                "depends on {}; reduce it with a collective over all replicas",
                op.label(), op.provenance->line,
                s.graph.info(at(op.inputs, options.condition).tensor).name, condition);
      }
      Results all;
      all.inputs = in;
      for (size_t k = 0; k < carried; ++k) all.outputs.push_back(in[k + kSkipped]);
      return finish(s, op, kSkipped, all);
    }
  }

  void branch(State& s, const Op& op) {
    const auto then_inputs = from_attrs<builtin::IfOptions>(op.attrs).then_inputs;
    const std::vector<Cause> all = operands(s, op);
    const auto middle = all.begin() + 1 + then_inputs;
    const Results then_made = run_callee(op.callees[0], {all.begin() + 1, middle});
    const Results else_made = run_callee(op.callees[1], {middle, all.end()});
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      Cause& cause = s.of(op.outputs[k]);
      cause = all[0];
      join(cause, then_made.outputs[k]);
      join(cause, else_made.outputs[k]);
    }
  }

  const Ir& ir_;
  std::map<const VariableInfo*, Cause> variables_;  // Variables that may differ.
  std::map<std::pair<GraphId, std::vector<Cause>>, Results> known_;
};

bool has_condition(const Ir& ir) {
  for (const GraphId g : ir.graph_ids()) {
    for (const Op& op : ir.graph(g).ops()) {
      if (op.def == &builtin::loop() && from_attrs<builtin::LoopOptions>(op.attrs).condition >= 0)
        return true;
    }
  }
  return false;
}

}  // namespace

void check_conditions(const Ir& ir) {
  if (ir.replication() > 1 && has_condition(ir)) UniformValues(ir).check();
}

}  // namespace sluice::compiler
