#include "sluice/compiler/passes/functionalise.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "sluice/compiler/analysis/body_facts.h"
#include "sluice/compiler/analysis/uniform.h"
#include "sluice/compiler/rewriter.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/collectives.h"

namespace sluice::compiler {

namespace {

constexpr size_t kLoopInputs = 2;  // Inputs of a loop's graph before the carried ones.

/// Finds the by-reference inputs that a graph writes for its caller.
class WrittenInputs {
 public:
  explicit WrittenInputs(const Ir& ir) : ir_(ir) {}

  const std::vector<bool>& of(GraphId id) {
    const auto known = written_.find(id);
    if (known != written_.end()) return known->second;
    const Graph& graph = ir_.graph(id);
    std::vector<bool> written;
    for (const TensorId input : graph.input_ids()) {
      const TensorInfo& info = graph.info(input);
      written.push_back(info.pass == Pass::kByReference && is_written(graph, info.storage));
    }
    return written_[id] = std::move(written);
  }

 private:
  // Whether an op writes a storage. A call adds a version even if its callee only reads the
  // by-reference input; then the callee decides.
  bool is_written(const Graph& graph, StorageId storage) {
    const auto& writers = graph.storage(storage).writers;
    for (const Version v : IdRange(Version(1), writers.end_id())) {
      const Op& op = graph.op(writers[v].op);
      if (op.callees.empty()) return true;
      const size_t skipped = op.def == &builtin::loop() ? kLoopInputs : 0;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const Operand& operand = op.inputs[i];
        if (operand.mode == Mode::kRead || graph.info(operand.tensor).storage != storage) continue;
        if (of(op.callees[0])[i + skipped]) return true;
      }
    }
    return false;
  }

  const Ir& ir_;
  std::unordered_map<GraphId, std::vector<bool>> written_;
};

/// Returns the body of a graph in a role.
using BodyOf = std::function<BodyId(GraphId, Role)>;

// A tensor that an op writes, its new version, and the value that the write overwrites (kNone:
// none).
struct Written {
  TensorId tensor;
  Version version;
  ValueIndex into;
  bool done = false;
};

class Functionaliser {
 public:
  Functionaliser(const Graph& graph, Role role, WrittenInputs& written, const BodyOf& body_of,
                 Program& program)
      : graph_(graph),
        written_(written),
        body_of_(body_of),
        program_(program),
        carried_(role == Role::kLoopBody ? graph.output_ids().size() : 0),
        current_(graph.storages().size(), kNone) {
    body_.graph = graph.id();
    body_.name = graph.name();
    body_.role = role;
  }

  Body run() {
    add_roots();
    for (const Op& op : graph_.ops()) visit(op);
    for (const TensorId t : graph_.output_ids()) body_.results.push_back(read(t));
    for (size_t i = 0; i < body_.params.size(); ++i) {
      if (!written_.of(graph_.id())[i]) continue;
      const ValueIndex last = current(graph_.input_ids()[i]);
      if (is_carried(i)) {
        body_.results.push_back(last);
      } else {
        body_.params[i].out = last;
      }
    }
    for (const TensorId t : graph_.tensors().ids()) {
      const TensorInfo& info = graph_.info(t);
      if (info.kind != TensorKind::kVariable) continue;
      // A call adds a version even of a variable that its callee only reads.
      const bool written = body_.value(current(t)).source != BodyValue::Source::kVariable;
      if (written) body_.variables.emplace_back(program_.variable(info), current(t));
    }
    if (body_.role == Role::kLoopBody) take_iteration();
    return std::move(body_);
  }

 private:
  // Whether an input of a loop's body is carried. The inputs are: iteration, keep-going, carried
  // values, invariants.
  bool is_carried(size_t input) const {
    return input >= kLoopInputs && input < kLoopInputs + carried_;
  }

  ValueIndex& current(TensorId t) { return current_[graph_.info(t).storage]; }

  std::string qualified(const std::string& name) const {
    return body_.is_entry() ? name : graph_.name() + "/" + name;
  }

  void add_roots() {
    const auto& inputs = graph_.input_ids();
    auto next = inputs.begin();  // Inputs are often in the order of their creation.
    for (const TensorId t : graph_.tensors().ids()) {
      const TensorInfo& info = graph_.info(t);
      BodyValue value{qualified(info.name), 0, info.spec, BodyValue::Source::kNode, -1};
      if (info.kind == TensorKind::kInput) {
        auto found = std::find(next, inputs.end(), t);
        if (found == inputs.end()) found = std::find(inputs.begin(), inputs.end(), t);
        if (found == inputs.end()) continue;  // A transform has removed it from the inputs.
        value.source = BodyValue::Source::kParam;
        value.index = static_cast<int32_t>(found - inputs.begin());
        next = found + 1;
      } else if (info.kind == TensorKind::kVariable) {
        value.source = BodyValue::Source::kVariable;
        value.index = program_.variable(info);
      } else if (info.kind == TensorKind::kConstant) {
        value.source = BodyValue::Source::kConstant;
        value.index = program_.constant(info);
      } else {
        continue;
      }
      current(t) = body_.add(std::move(value));
    }
    for (const TensorId t : inputs)
      body_.params.push_back({graph_.info(t).name, current(t), kNone});
  }

  ValueIndex add_version(TensorId t, int64_t version) {
    const TensorInfo& root = graph_.info(graph_.storage(graph_.info(t).storage).root);
    const ValueIndex v =
        body_.add({qualified(root.name), version, root.spec, BodyValue::Source::kNode, -1});
    current(t) = v;
    return v;
  }

  // Returns the value that a read of the tensor finds. An undefined Init is filled with zeros
  // before its first read, so that every run has the same result.
  ValueIndex read(TensorId t) {
    ValueIndex& v = current(t);
    if (body_.value(v).source == BodyValue::Source::kUndefined) {
      BodyValue& value = body_.value(v);
      value.source = BodyValue::Source::kNode;
      Node node;
      node.def = &builtin::init();
      node.what = Node::Kernel{
          to_attrs(builtin::InitOptions{.shape = value.spec.shape, .dtype = value.spec.dtype})};
      add_output(node, v, value.spec);
      body_.nodes.push_back(std::move(node));
    }
    return v;
  }

  // Returns the current value of an operand, as a value that the op may overwrite. Copies by-value
  // and carried inputs and constants.
  ValueIndex writable(TensorId t, const Op& op) {
    const ValueIndex v = read(t);
    const BodyValue& value = body_.value(v);
    const auto input = static_cast<size_t>(value.index);
    const bool own = value.source == BodyValue::Source::kNode ||
                     value.source == BodyValue::Source::kVariable ||
                     (value.source == BodyValue::Source::kParam && !is_carried(input) &&
                      graph_.info(graph_.input_ids()[input]).pass == Pass::kByReference);
    if (own) return v;
    const ValueIndex copy = add_copy(op, v);
    current(t) = copy;
    return copy;
  }

  ValueIndex add_copy(const Op& op, ValueIndex v) {
    Node node = make_copy(body_, v, "'", begin(op));
    node.def = op.def;
    body_.nodes.push_back(std::move(node));
    return body_.nodes.back().outputs[0];
  }

  Node begin(const Op& op) const {
    Node node;
    node.def = op.def;
    node.origin = op.id;
    node.provenance = op.provenance;
    node.device = op.device;
    return node;
  }

  Node::What what(const Op& op) {
    if (op.def->has(Trait::kView)) return Node::View{};
    if (op.def->has(Trait::kCollective)) return Node::Collective{op.attrs, group_of(op)};
    if (op.def->has(Trait::kStructural)) return Node::Transfer{.effect = op.effects.at(0)};
    return Node::Kernel{op.attrs, {}, !op.effects.empty()};
  }

  exe::GroupId group_of(const Op& collective) {
    try {
      const ReplicaGrouping group =
          ops::collective_group(collective.attrs, program_.ir.replication());
      const auto known = std::find(program_.groups.begin(), program_.groups.end(), group);
      return known != program_.groups.end() ? program_.groups.id_of(*known)
                                            : program_.groups.push_back(group);
    } catch (Error& e) {
      throw e.note(fmt::format("compiling {} of graph {}", collective.label(), graph_.name()));
    }
  }

  void visit(const Op& op) {
    if (op.def == &builtin::init()) return init(op);
    if (op.def == &builtin::call() || op.def == &builtin::loop() || op.def == &builtin::branch())
      return call(op);
    // A view that aliases its operand is another name for the same storage and needs no node.
    if (op.def->has(Trait::kView) && !op.def->aliases.empty()) return;
    Node node = begin(op);
    node.what = what(op);
    const bool transfer = node.is<Node::Transfer>();
    std::vector<Written> written;
    for (const Operand& o : op.inputs) {
      if (o.mode == Mode::kWrite && transfer) {
        const bool fresh = body_.value(current(o.tensor)).source == BodyValue::Source::kUndefined;
        written.push_back({o.tensor, o.new_version, fresh ? kNone : writable(o.tensor, op)});
        continue;
      }
      const ValueIndex v = o.mode == Mode::kRead ? read(o.tensor) : writable(o.tensor, op);
      if (o.mode != Mode::kRead) written.push_back({o.tensor, o.new_version, v});
      add_input(node, v, graph_.spec(o.tensor));
    }
    const auto make_version = [&](Written& w, const TensorSpec& spec) {
      const ValueIndex made = add_version(w.tensor, w.version);
      if (w.into == kNone) {
        add_output(node, made, spec);
      } else {
        add_overwrite(node, w.into, made, spec);
      }
      w.done = true;
    };
    // Add the outputs in the op's order. An output that aliases a written operand is its new
    // version.
    for (const TensorId t : op.outputs) {
      const auto w = std::find_if(written.begin(), written.end(), [&](const Written& entry) {
        return graph_.info(entry.tensor).storage == graph_.info(t).storage;
      });
      if (w != written.end()) {
        make_version(*w, graph_.spec(t));
      } else {
        add_output(node, add_version(t, 0), graph_.spec(t));
      }
    }
    for (Written& w : written) {
      if (!w.done) make_version(w, graph_.spec(w.tensor));
    }
    body_.nodes.push_back(std::move(node));
  }

  void init(const Op& op) {
    const TensorId t = op.outputs[0];
    const ValueIndex v = add_version(t, 0);
    if (from_attrs<builtin::InitOptions>(op.attrs).undefined) {
      body_.value(v).source = BodyValue::Source::kUndefined;
      return;
    }
    Node node = begin(op);
    node.what = Node::Kernel{op.attrs};
    add_output(node, v, graph_.spec(t));
    body_.nodes.push_back(std::move(node));
  }

  void call(const Op& op) {
    Node node = begin(op);
    if (op.def == &builtin::branch()) return branch(op, std::move(node));
    Node::Loop loop;
    size_t skipped = 0;  // Leading inputs of the callee without an operand.
    if (op.def == &builtin::loop()) {
      const auto options = from_attrs<builtin::LoopOptions>(op.attrs);
      loop.trips = options.trips;
      loop.carried = static_cast<int32_t>(options.carried);
      if (loop.trips == 0) return skip_loop(op, node);
      if (options.condition >= 0) loop.conditions = {static_cast<int32_t>(options.condition)};
      skipped = kLoopInputs;
    }
    const std::vector<bool>& writes = written_.of(op.callees[0]);
    std::vector<size_t> left;  // By-reference carried operands, which get the last value.
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId t = op.inputs[i].tensor;
      const bool carried = static_cast<int32_t>(i) < loop.carried;
      const bool written = writes[skipped + i];
      if (written && !carried) loop.updated.push_back(static_cast<int32_t>(i));
      if (written && carried) left.push_back(i);
      add_input(node, written && !carried ? writable(t, op) : read(t), graph_.spec(t));
    }
    for (const int32_t c : loop.conditions) {
      const bool updated =
          std::find(loop.updated.begin(), loop.updated.end(), c) != loop.updated.end();
      require(updated, "{} made at {}: its graph must write the condition '{}', or it never ends",
              op.label(), op.provenance->line, graph_.info(at(op.inputs, c).tensor).name);
    }
    copy_overlapping_arguments(op, loop.updated, node);
    add_outputs(op, node);
    for (const size_t i : left) {
      const TensorSpec& spec = graph_.spec(op.inputs[i].tensor);
      const ValueIndex last =
          body_.add({qualified(graph_.info(op.inputs[i].tensor).name) + "'left",
                     op.inputs[i].new_version, spec, BodyValue::Source::kNode, -1});
      add_output(node, last, spec);
    }
    loop.results = static_cast<int32_t>(node.outputs.size());
    for (const int32_t i : loop.updated) {
      const Operand& o = at(op.inputs, i);
      add_overwrite(node, at(node.inputs, i), add_version(o.tensor, o.new_version),
                    graph_.spec(o.tensor));
    }
    const std::vector<ValueIndex> outputs = node.outputs;
    if (op.def == &builtin::loop()) {
      loop.callee = body_of_(op.callees[0], Role::kLoopBody);
      loop.index_args = {exe::IndexExpr::iteration()};
      node.what = std::move(loop);
    } else {
      loop.callee = body_of_(op.callees[0], Role::kFunction);
      node.what = static_cast<Node::Call>(std::move(loop));
    }
    body_.nodes.push_back(std::move(node));
    for (size_t k = 0; k < left.size(); ++k)
      overwrite(op, op.inputs[left[k]], outputs[op.outputs.size() + k]);
  }

  void branch(const Op& op, Node node) {
    const auto options = from_attrs<builtin::IfOptions>(op.attrs);
    node.what = Node::Branch{
        {body_of_(op.callees[0], Role::kFunction), body_of_(op.callees[1], Role::kFunction)},
        static_cast<int32_t>(options.then_inputs)};
    for (const Operand& o : op.inputs) add_input(node, read(o.tensor), graph_.spec(o.tensor));
    add_outputs(op, node);
    body_.nodes.push_back(std::move(node));
  }

  void add_outputs(const Op& op, Node& node) {
    for (const TensorId t : op.outputs) add_output(node, add_version(t, 0), graph_.spec(t));
  }

  // Copies a value into the storage of an operand.
  void overwrite(const Op& op, const Operand& target, ValueIndex from) {
    const ValueIndex into = writable(target.tensor, op);
    add_copy(op, from);
    Node& copy = body_.nodes.back();
    copy.ties = {{0, into}};
    copy.outputs = {add_version(target.tensor, target.new_version)};
  }

  // Copies arguments, so that the callee gets each value that it updates only once.
  void copy_overlapping_arguments(const Op& op, const std::vector<int32_t>& updated, Node& node) {
    std::unordered_map<ValueIndex, int> updates;
    std::vector<bool> is_updated(node.inputs.size(), false);
    for (const int32_t u : updated) {
      ++updates[at(node.inputs, u)];
      at(is_updated, u) = true;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = updates.find(node.inputs[i]);
      if (found == updates.end() || found->second == (is_updated[i] ? 1 : 0)) continue;
      if (is_updated[i]) --found->second;
      node.inputs[i] = add_copy(op, node.inputs[i]);
    }
  }

  // A loop without iterations returns its carried inputs.
  void skip_loop(const Op& op, const Node& like) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      Node node = like;
      node.what = Node::View{};
      add_input(node, read(op.inputs[k].tensor), graph_.spec(op.inputs[k].tensor));
      add_output(node, add_version(op.outputs[k], 0), graph_.spec(op.outputs[k]));
      body_.nodes.push_back(std::move(node));
    }
  }

  // Converts the inputs iteration and keep-going of a loop's graph into index parameter 0, the
  // iteration. An Index node computes its value if something reads it.
  void take_iteration() {
    const ValueIndex iteration = body_.params[0].in;
    for (size_t i = 0; i < kLoopInputs; ++i) {
      body_.value(body_.params[i].in).source = BodyValue::Source::kUndefined;
      body_.value(body_.params[i].in).index = -1;
    }
    body_.params.erase(body_.params.begin(), body_.params.begin() + kLoopInputs);
    for (size_t i = 0; i < body_.params.size(); ++i)
      body_.value(body_.params[i].in).index = static_cast<int32_t>(i);
    body_.index_params = {std::nullopt};
    const bool read = std::any_of(body_.nodes.begin(), body_.nodes.end(), [&](const Node& n) {
      return std::find(n.inputs.begin(), n.inputs.end(), iteration) != n.inputs.end();
    });
    const bool returned =
        std::find(body_.results.begin(), body_.results.end(), iteration) != body_.results.end();
    if (!read && !returned) return;
    BodyValue& value = body_.value(iteration);
    value.source = BodyValue::Source::kNode;
    Node node;
    node.what = Node::Index{exe::IndexExpr::param(0)};
    add_output(node, iteration, value.spec);
    node.provenance = Provenance{.role = OpRole::kCopy, .line = "iteration of " + body_.name};
    body_.nodes.items().insert(body_.nodes.begin(), std::move(node));
  }

  const Graph& graph_;
  WrittenInputs& written_;
  const BodyOf& body_of_;
  Program& program_;
  size_t carried_;
  Body body_;
  Ids<StorageId, ValueIndex> current_;
};

}  // namespace

int64_t functionalise(Program& program, const Context&) {
  check_calls(program.ir);
  check_conditions(program.ir);
  WrittenInputs written(program.ir);
  std::map<std::pair<GraphId, Role>, BodyId> known;
  const BodyOf body_of = [&](GraphId graph, Role role) {
    const auto found = known.find({graph, role});
    if (found != known.end()) return found->second;
    Body body = Functionaliser(program.ir.graph(graph), role, written, body_of, program).run();
    return known[{graph, role}] = program.add(std::move(body));
  };
  for (const auto& [name, graph] : program.ir.entries())
    program.entries.push_back({name, {body_of(graph, Role::kEntry)}});
  FactTable{program};  // Reports conditionals that communicate.
  return static_cast<int64_t>(program.bodies.size());
}

}  // namespace sluice::compiler
