#include "sluice/ir/verify.h"

#include <set>

#include "sluice/ir/builtin.h"

namespace sluice {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<int64_t> version(static_cast<size_t>(graph_.storage_count()), 0);
    std::vector<bool> defined(static_cast<size_t>(graph_.tensor_count()), false);
    for (TensorId t = 0; t < graph_.tensor_count(); ++t)
      defined[static_cast<size_t>(t)] = graph_.info(t).producer < 0;
    OpId previous = -1;
    for (const Op& op : graph_.ops()) {
      check(op.id > previous || previous < 0 || op.id >= 100, op, "op ids ascend from 100");
      previous = op.id;
      for (const Operand& o : op.inputs) {
        check(o.tensor >= 0 && o.tensor < graph_.tensor_count(), op, "operand exists");
        check(defined[static_cast<size_t>(o.tensor)], op, "operand is made before it is used");
        const auto storage = static_cast<size_t>(graph_.info(o.tensor).storage);
        check(o.version == version[storage], op, "operand reads the current version");
        check((o.mode == Mode::kRead) == (o.new_version < 0), op,
              "writers and only they make versions");
      }
      for (const Operand& o : op.inputs) {
        if (o.new_version < 0) continue;
        const auto storage = static_cast<size_t>(graph_.info(o.tensor).storage);
        check(o.new_version == version[storage] + 1, op, "versions ascend one by one");
        version[storage] = o.new_version;
        check(graph_.storage(graph_.info(o.tensor).storage)
                      .writers[static_cast<size_t>(o.new_version)]
                      .op == op.id,
              op, "the storage knows its writer");
      }
      for (const TensorId t : op.outputs) {
        check(!defined[static_cast<size_t>(t)], op, "an output is made once");
        check(graph_.info(t).producer == op.id, op, "an output knows its producer");
        defined[static_cast<size_t>(t)] = true;
      }
      for (const Alias& a : op.def->aliases) {
        check(graph_.info(op.outputs[static_cast<size_t>(a.output)]).storage ==
                  graph_.info(op.inputs[static_cast<size_t>(a.input)].tensor).storage,
              op, "aliases share storage");
      }
      check_specs(op);
      check_callees(op);
    }
    for (const TensorId t : graph_.output_ids()) {
      SLUICE_CHECK(t >= 0 && t < graph_.tensor_count() && defined[static_cast<size_t>(t)]);
    }
  }

 private:
  void check(bool holds, const Op& op, const char* rule) const {
    if (!holds) {
      fail(ErrorKind::kInternal, "graph {}, {}: broken rule: {}", graph_.name(), op.label(), rule);
    }
  }

  void check_specs(const Op& op) const {
    if (op.def->has(Trait::kStructural)) return;
    std::vector<TensorSpec> in;
    for (const Operand& o : op.inputs) in.push_back(graph_.spec(o.tensor));
    const auto out = op.def->infer(OpView(*op.def, op.attrs, in));
    check(out.size() == op.outputs.size(), op, "as many outputs as the shape rule gives");
    for (size_t i = 0; i < out.size(); ++i) {
      check(out[i].shape == graph_.spec(op.outputs[i]).shape &&
                out[i].dtype == graph_.spec(op.outputs[i]).dtype,
            op, "output specs follow the shape rule");
    }
  }

  void check_site(const Op& op, const Graph& callee, size_t first, size_t count) const {
    check(callee.input_ids().size() == count, op,
          "as many operands as the called graph has inputs");
    for (size_t i = 0; i < count; ++i) {
      const TensorSpec& want = callee.spec(callee.input_ids()[i]);
      const TensorSpec& have = graph_.spec(op.inputs[first + i].tensor);
      check(want.shape == have.shape && want.dtype == have.dtype, op,
            "operands match the called graph's inputs");
    }
  }

  void check_callees(const Op& op) const {
    const Ir ir = graph_.ir();
    for (const GraphId id : op.callees)
      check(id != graph_.id() && id >= 0 && id < ir.graph_count(), op, "callee exists");
    if (op.def == &builtin::call()) {
      const Graph& callee = ir.graph(op.callees[0]);
      check_site(op, callee, 0, op.inputs.size());
      check(callee.output_ids().size() == op.outputs.size(), op,
            "as many results as the called graph has outputs");
    }
    if (op.def == &builtin::branch()) {
      const auto then_inputs =
          static_cast<size_t>(from_attrs<builtin::IfOptions>(op.attrs).then_inputs);
      check_site(op, ir.graph(op.callees[0]), 1, then_inputs);
      check_site(op, ir.graph(op.callees[1]), 1 + then_inputs, op.inputs.size() - 1 - then_inputs);
    }
  }

  const Graph& graph_;
};

void check_acyclic(const Ir& ir, GraphId id, std::vector<int>& state) {
  if (state[static_cast<size_t>(id)] == 2) return;
  if (state[static_cast<size_t>(id)] == 1)
    fail(ErrorKind::kInternal, "graph {} calls itself", ir.graph(id).name());
  state[static_cast<size_t>(id)] = 1;
  for (const Op& op : ir.graph(id).ops()) {
    for (const GraphId callee : op.callees) check_acyclic(ir, callee, state);
  }
  state[static_cast<size_t>(id)] = 2;
}

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

void verify(const Ir& ir) {
  std::vector<int> state(static_cast<size_t>(ir.graph_count()), 0);
  for (GraphId id = 0; id < ir.graph_count(); ++id) {
    verify(ir.graph(id));
    check_acyclic(ir, id, state);
  }
}

}  // namespace sluice
