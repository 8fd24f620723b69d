#include "sluice/ir/verify.h"

#include <algorithm>

#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"

namespace sluice {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    Ids<StorageId, Version> version(graph_.storages().size(), Version(0));
    Ids<TensorId, bool> defined;
    for (const TensorInfo& info : graph_.tensors()) defined.push_back(!info.producer.valid());
    OpId previous;
    for (const Op& op : graph_.ops()) {
      check(op.id > previous || !previous.valid() || op.id >= 100, op, "op ids ascend from 100");
      previous = op.id;
      for (const Operand& o : op.inputs) {
        check(defined.contains(o.tensor), op, "operand exists");
        check(defined[o.tensor], op, "operand is made before it is used");
        const StorageId storage = graph_.info(o.tensor).storage;
        check(o.version == version[storage], op, "operand reads the current version");
        check((o.mode == Mode::kRead) == !o.new_version.valid(), op,
              "writers and only they make versions");
      }
      for (const Operand& o : op.inputs) {
        if (!o.new_version.valid()) continue;
        const StorageId storage = graph_.info(o.tensor).storage;
        check(o.new_version == version[storage] + 1, op, "versions ascend one by one");
        version[storage] = o.new_version;
        check(graph_.storage(storage).writers[o.new_version].op == op.id, op,
              "the storage knows its writer");
      }
      for (const TensorId t : op.outputs) {
        check(!defined[t], op, "an output is made once");
        check(graph_.info(t).producer == op.id, op, "an output knows its producer");
        defined[t] = true;
      }
      for (const Alias& a : op.def->aliases) {
        check(graph_.info(at(op.outputs, a.output)).storage ==
                  graph_.info(at(op.inputs, a.input).tensor).storage,
              op, "aliases share storage");
      }
      check_specs(op);
      check_callees(op);
    }
    for (const TensorId t : graph_.output_ids()) {
      SLUICE_CHECK(defined.contains(t) && defined[t]);
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
    check(out.size() == op.outputs.size(), op, "as many outputs as the shape rule returns");
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
      check(id != graph_.id() && id.valid() && id < ir.graph_count(), op, "callee exists");
    if (op.def == &builtin::call()) {
      const Graph& callee = ir.graph(op.callees[0]);
      check_site(op, callee, 0, op.inputs.size());
      check(callee.output_ids().size() == op.outputs.size(), op,
            "as many results as the called graph has outputs");
    }
    if (op.def == &builtin::branch()) {
      const size_t then_inputs = builtin::then_inputs(op);
      check_site(op, ir.graph(op.callees[0]), 1, then_inputs);
      check_site(op, ir.graph(op.callees[1]), 1 + then_inputs, op.inputs.size() - 1 - then_inputs);
    }
  }

  const Graph& graph_;
};

class CallChecker {
 public:
  explicit CallChecker(const Ir& ir) : ir_(ir) {
    for ([[maybe_unused]] const GraphId id : ir.graph_ids()) height_.push_back(kNew);
  }

  /// Returns the length of the longest chain of calls from a graph. The graph itself is called
  /// through `depth` other graphs.
  int height(GraphId id, int depth) {
    int& known = height_[id];
    const Graph& graph = ir_.graph(id);
    require(known != kOpen, "graph {} calls itself", graph.name());
    if (known == kNew) {
      check_depth(graph, depth);
      known = kOpen;
      int longest = 0;
      for (const Op& op : graph.ops()) {
        for (const GraphId callee : op.callees)
          longest = std::max(longest, 1 + height(callee, depth + 1));
        check_fit(graph, op);
      }
      known = longest;
    }
    check_depth(graph, depth + known);
    return known;
  }

 private:
  static constexpr int kNew = -1;
  static constexpr int kOpen = -2;
  static constexpr int kMaxDepth = 400;

  static void check_depth(const Graph& graph, int depth) {
    require(depth <= kMaxDepth, "calls through graph {} are nested deeper than {}", graph.name(),
            kMaxDepth);
  }

  // Compares `count` operands of the op, from operand `first` on, with the inputs of the called
  // graph from input `skipped` on. Compares the results of the op with the outputs.
  void check_site(const Graph& graph, const Op& op, GraphId callee_id, size_t first, size_t count,
                  size_t skipped) const {
    const Graph& callee = ir_.graph(callee_id);
    const auto changed = [&](std::string_view how) {
      fail(ErrorKind::kUsage, "graph {} was changed after {} ({}) in graph {} called it: {}",
           callee.name(), op.label(), op.provenance->line, graph.name(), how);
    };
    const auto& ins = callee.input_ids();
    const auto& outs = callee.output_ids();
    if (ins.size() != count + skipped)
      changed(fmt::format("it has {} inputs, the call passes {}", ins.size(), count + skipped));
    if (outs.size() != op.outputs.size())
      changed(
          fmt::format("it has {} outputs, the call returns {}", outs.size(), op.outputs.size()));
    const auto compare = [&](const char* what, TensorId theirs, TensorId ours) {
      const TensorSpec& a = callee.spec(theirs);
      const TensorSpec& b = graph.spec(ours);
      if (a.shape != b.shape || a.dtype != b.dtype)
        changed(fmt::format("its {} '{}' is {}, the call has {}", what, callee.info(theirs).name,
                            to_string(a), to_string(b)));
    };
    for (size_t i = 0; i < count; ++i)
      compare("input", ins[skipped + i], op.inputs[first + i].tensor);
    for (size_t i = 0; i < outs.size(); ++i) compare("output", outs[i], op.outputs[i]);
  }

  void check_fit(const Graph& graph, const Op& op) const {
    if (op.def == &builtin::call()) check_site(graph, op, op.callees[0], 0, op.inputs.size(), 0);
    // The first two inputs of the wrapper are the iteration and keep-going.
    if (op.def == &builtin::loop()) check_site(graph, op, op.callees[0], 0, op.inputs.size(), 2);
    if (op.def == &builtin::branch()) {
      const size_t then_inputs = builtin::then_inputs(op);
      check_site(graph, op, op.callees[0], 1, then_inputs, 0);
      check_site(graph, op, op.callees[1], 1 + then_inputs, op.inputs.size() - 1 - then_inputs, 0);
    }
  }

  const Ir& ir_;
  Ids<GraphId, int> height_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

void verify(const Ir& ir) {
  check_calls(ir);
  for (const GraphId id : ir.graph_ids()) verify(ir.graph(id));
}

void check_calls(const Ir& ir) {
  CallChecker checker(ir);
  for (const GraphId id : ir.graph_ids()) checker.height(id, 0);
}

}  // namespace sluice
