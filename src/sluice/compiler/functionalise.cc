#include "sluice/compiler/functionalise.h"

#include <algorithm>
#include <unordered_map>

#include "sluice/ir/builtin.h"

namespace sluice::compiler {

int32_t Globals::variable(const TensorInfo& info) {
  const auto [place, fresh] =
      variable_index.try_emplace(info.variable.get(), static_cast<int32_t>(variables.size()));
  if (fresh) variables.push_back({info.variable, info.spec, 0, {}});
  return place->second;
}

int32_t Globals::constant(const TensorInfo& info) {
  const auto [place, fresh] =
      constant_index_.try_emplace(info.constant.get(), static_cast<int32_t>(constants.size()));
  if (fresh) constants.push_back({info.name, info.constant, 0});
  return place->second;
}

namespace {

// A storage that an op writes, the version it makes, and the value that the write ends (kNone: there was none).
struct Written {
  TensorId tensor;
  int64_t version;
  ValueIndex into;
  bool done = false;
};

class Functionaliser {
 public:
  Functionaliser(const Graph& graph, const FactTable& facts, Globals& globals, GraphRole role)
      : graph_(graph),
        facts_(facts),
        globals_(globals),
        carried_(role == GraphRole::kLoopBody ? graph.output_ids().size() : 0),
        current_(static_cast<size_t>(graph.storage_count()), kNone) {}

  Body run() {
    body_.graph = graph_.id();
    body_.name = graph_.name();
    body_.is_entry = graph_.is_entry();
    add_roots();
    for (const Op& op : graph_.ops()) visit(op);
    for (const TensorId t : graph_.output_ids()) body_.results.push_back(read(t));
    for (size_t i = 0; i < body_.params.size(); ++i) {
      if (!facts_[graph_.id()].writes_input[i]) continue;
      const ValueIndex last = current(graph_.input_ids()[i]);
      if (is_carried(i)) {
        body_.results.push_back(last);
      } else {
        body_.params[i].out = last;
      }
    }
    for (TensorId t = 0; t < graph_.tensor_count(); ++t) {
      const TensorInfo& info = graph_.info(t);
      if (info.kind == TensorKind::kVariable && graph_.storage(info.storage).version() > 0) {
        body_.variables.emplace_back(globals_.variable(info), current(t));
      }
    }
    return std::move(body_);
  }

 private:
  // Inputs of a loop's body: iteration, keep-going, the carried values, the invariants.
  bool is_carried(size_t input) const {
    return input >= kLoopInputs && input < kLoopInputs + carried_;
  }

  ValueIndex& current(TensorId t) { return current_[static_cast<size_t>(graph_.info(t).storage)]; }

  std::string qualified(const std::string& name) const {
    return graph_.is_entry() ? name : graph_.name() + "/" + name;
  }

  void add_roots() {
    for (TensorId t = 0; t < graph_.tensor_count(); ++t) {
      const TensorInfo& info = graph_.info(t);
      BodyValue value{qualified(info.name), 0, info.spec, BodyValue::Source::kNode, -1};
      if (info.kind == TensorKind::kInput) {
        value.source = BodyValue::Source::kParam;
        for (size_t i = 0; i < graph_.input_ids().size(); ++i) {
          if (graph_.input_ids()[i] == t) value.index = static_cast<int32_t>(i);
        }
      } else if (info.kind == TensorKind::kVariable) {
        value.source = BodyValue::Source::kVariable;
        value.index = globals_.variable(info);
      } else if (info.kind == TensorKind::kConstant) {
        value.source = BodyValue::Source::kConstant;
        value.index = globals_.constant(info);
      } else {
        continue;
      }
      current(t) = body_.add(std::move(value));
    }
    for (const TensorId t : graph_.input_ids())
      body_.params.push_back({graph_.info(t).name, current(t), kNone});
  }

  ValueIndex add_version(TensorId t, int64_t version) {
    const TensorInfo& root = graph_.info(graph_.storage(graph_.info(t).storage).root);
    const ValueIndex v =
        body_.add({qualified(root.name), version, root.spec, BodyValue::Source::kNode, -1});
    current(t) = v;
    return v;
  }

  // What a read of the tensor finds now. An Init that nobody wrote is filled with zeros, so that every run agrees.
  ValueIndex read(TensorId t) {
    ValueIndex& v = current(t);
    if (body_.value(v).source == BodyValue::Source::kUndefined) {
      BodyValue& value = body_.values[static_cast<size_t>(v)];
      value.source = BodyValue::Source::kNode;
      Node node;
      node.def = &builtin::init();
      node.attrs =
          to_attrs(builtin::InitOptions{.shape = value.spec.shape, .dtype = value.spec.dtype});
      node.outputs = {v};
      node.out_specs = {value.spec};
      body_.nodes.push_back(std::move(node));
    }
    return v;
  }

  // Makes the storage of an operand writable here: a by-value input is copied.
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
    const BodyValue value = body_.value(v);
    Node node = begin(op);
    node.kind = Node::Kind::kCopy;
    node.inputs = {v};
    node.in_specs = {value.spec};
    node.out_specs = {value.spec};
    node.outputs = {
        body_.add({value.tensor + "'", value.version, value.spec, BodyValue::Source::kNode, -1})};
    body_.nodes.push_back(std::move(node));
    return body_.nodes.back().outputs[0];
  }

  Node begin(const Op& op) {
    Node node;
    node.def = op.def;
    node.origin = op.id;
    node.where = op.module_path.empty() ? op.where : op.module_path + " " + op.where;
    node.device = op.device == kInheritDevice ? 0 : op.device;
    return node;
  }

  void visit(const Op& op) {
    if (op.def == &builtin::init()) return init(op);
    if (op.def == &builtin::call() || op.def == &builtin::loop() || op.def == &builtin::branch())
      return call(op);
    const bool transfer = op.def->has(Trait::kStructural);
    Node node = begin(op);
    node.kind = transfer ? Node::Kind::kTransfer : Node::Kind::kKernel;
    node.attrs = op.attrs;
    if (!op.effects.empty()) {
      node.effect = op.effects[0];
      node.has_effect = true;
    }
    // Views that alias their operand are other names for the same storage: nothing happens.
    if (op.def->has(Trait::kView) && !op.def->aliases.empty()) return;
    if (op.def->has(Trait::kView)) node.kind = Node::Kind::kView;
    if (op.def->has(Trait::kCollective)) {
      node.kind = Node::Kind::kCollective;
      node.group = facts_.group_of(op.attrs);
    }
    std::vector<Written> written;
    for (const Operand& o : op.inputs) {
      if (o.mode == Mode::kWrite && transfer) {
        const bool fresh = body_.value(current(o.tensor)).source == BodyValue::Source::kUndefined;
        written.push_back({o.tensor, o.new_version, fresh ? kNone : writable(o.tensor, op)});
        continue;
      }
      const ValueIndex v = o.mode == Mode::kRead ? read(o.tensor) : writable(o.tensor, op);
      if (o.mode != Mode::kRead) written.push_back({o.tensor, o.new_version, v});
      node.inputs.push_back(v);
      node.in_specs.push_back(graph_.spec(o.tensor));
    }
    const auto make_version = [&](Written& w) {
      if (w.into != kNone) node.ties.push_back({static_cast<int32_t>(node.outputs.size()), w.into});
      node.outputs.push_back(add_version(w.tensor, w.version));
      w.done = true;
    };
    // Outputs in the op's order: those that alias a written operand are its new version.
    for (const TensorId t : op.outputs) {
      node.out_specs.push_back(graph_.spec(t));
      const auto w = std::find_if(written.begin(), written.end(), [&](const Written& entry) {
        return graph_.info(entry.tensor).storage == graph_.info(t).storage;
      });
      if (w != written.end()) {
        make_version(*w);
      } else {
        node.outputs.push_back(add_version(t, 0));
      }
    }
    for (Written& w : written) {
      if (w.done) continue;
      node.out_specs.push_back(graph_.spec(w.tensor));
      make_version(w);
    }
    body_.nodes.push_back(std::move(node));
  }

  void init(const Op& op) {
    const TensorId t = op.outputs[0];
    const ValueIndex v = add_version(t, 0);
    if (from_attrs<builtin::InitOptions>(op.attrs).undefined) {
      body_.values[static_cast<size_t>(v)].source = BodyValue::Source::kUndefined;
      return;
    }
    Node node = begin(op);
    node.attrs = op.attrs;
    node.outputs = {v};
    node.out_specs = {graph_.spec(t)};
    body_.nodes.push_back(std::move(node));
  }

  void call(const Op& op) {
    Node node = begin(op);
    node.callees = op.callees;
    size_t skipped = 0;        // Inputs of the callee that the op has no operand for.
    std::vector<size_t> left;  // Carried operands by reference: the loop leaves its last in them.
    if (op.def == &builtin::loop()) {
      const auto options = from_attrs<builtin::LoopOptions>(op.attrs);
      node.kind = Node::Kind::kLoop;
      node.trips = options.trips;
      node.carried = static_cast<int32_t>(options.carried);
      skipped = kLoopInputs;
    } else if (op.def == &builtin::branch()) {
      node.kind = Node::Kind::kBranch;
      node.then_inputs = static_cast<int32_t>(from_attrs<builtin::IfOptions>(op.attrs).then_inputs);
    } else {
      node.kind = Node::Kind::kCall;
    }
    if (node.kind == Node::Kind::kLoop && node.trips == 0) return skip_loop(op, node);
    const bool by_reference = node.kind != Node::Kind::kBranch;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId t = op.inputs[i].tensor;
      const bool writes = by_reference && facts_[op.callees[0]].writes_input[skipped + i];
      const bool carried = static_cast<int32_t>(i) < node.carried;
      if (writes && !carried) node.updated.push_back(static_cast<int32_t>(i));
      if (writes && carried) left.push_back(i);
      node.inputs.push_back(writes && !carried ? writable(t, op) : read(t));
      node.in_specs.push_back(graph_.spec(t));
    }
    copy_overlapping_arguments(op, node);
    for (const TensorId t : op.outputs) {
      node.outputs.push_back(add_version(t, 0));
      node.out_specs.push_back(graph_.spec(t));
    }
    for (const size_t i : left) {
      const TensorSpec& spec = graph_.spec(op.inputs[i].tensor);
      node.outputs.push_back(
          body_.add({qualified(graph_.info(op.inputs[i].tensor).name) + "'left",
                     op.inputs[i].new_version, spec, BodyValue::Source::kNode, -1}));
      node.out_specs.push_back(spec);
    }
    node.results = static_cast<int32_t>(node.outputs.size());
    for (const int32_t i : node.updated) {
      const Operand& o = op.inputs[static_cast<size_t>(i)];
      node.ties.push_back(
          {static_cast<int32_t>(node.outputs.size()), node.inputs[static_cast<size_t>(i)]});
      node.outputs.push_back(add_version(o.tensor, o.new_version));
      node.out_specs.push_back(graph_.spec(o.tensor));
    }
    const std::vector<ValueIndex> outputs = node.outputs;
    body_.nodes.push_back(std::move(node));
    for (size_t k = 0; k < left.size(); ++k)
      overwrite(op, op.inputs[left[k]], outputs[op.outputs.size() + k]);
  }

  // Copies a value into the storage of an operand.
  void overwrite(const Op& op, const Operand& target, ValueIndex from) {
    const ValueIndex into = writable(target.tensor, op);
    add_copy(op, from);
    Node& copy = body_.nodes.back();
    copy.ties = {{0, into}};
    copy.outputs = {add_version(target.tensor, target.new_version)};
  }

  // An argument by value that the callee also gets by reference, and writes, is copied.
  void copy_overlapping_arguments(const Op& op, Node& node) {
    std::unordered_map<ValueIndex, int> updates;
    std::vector<bool> is_updated(node.inputs.size(), false);
    for (const int32_t u : node.updated) {
      ++updates[node.inputs[static_cast<size_t>(u)]];
      is_updated[static_cast<size_t>(u)] = true;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = updates.find(node.inputs[i]);
      if (found == updates.end() || found->second == (is_updated[i] ? 1 : 0)) continue;
      if (is_updated[i]) --found->second;
      node.inputs[i] = add_copy(op, node.inputs[i]);
    }
  }

  // A loop without iterations returns what it was given.
  void skip_loop(const Op& op, const Node& like) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      Node node = like;
      node.kind = Node::Kind::kView;
      node.callees.clear();
      node.inputs = {read(op.inputs[k].tensor)};
      node.in_specs = {graph_.spec(op.inputs[k].tensor)};
      node.outputs = {add_version(op.outputs[k], 0)};
      node.out_specs = {graph_.spec(op.outputs[k])};
      body_.nodes.push_back(std::move(node));
    }
  }

  static constexpr size_t kLoopInputs = 2;  // Inputs of a loop's body before the carried ones.

  const Graph& graph_;
  const FactTable& facts_;
  Globals& globals_;
  size_t carried_;
  Body body_;
  std::vector<ValueIndex> current_;
};

}  // namespace

Body functionalise(const Graph& graph, const FactTable& facts, Globals& globals, GraphRole role) {
  return Functionaliser(graph, facts, globals, role).run();
}

}  // namespace sluice::compiler
