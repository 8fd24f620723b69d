#include "sluice/ir/graph_editor.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sluice/ir/builtin.h"
#include "sluice/ir/op_def.h"

namespace sluice {
namespace {

bool has_effects(const Ir& ir, const Op& op, std::map<GraphId, bool>& known);

bool has_effects(const Ir& ir, GraphId id, std::map<GraphId, bool>& known) {
  const auto found = known.find(id);
  if (found != known.end()) return found->second;
  const auto& ops = ir.graph(id).ops();
  const bool any =
      std::any_of(ops.begin(), ops.end(), [&](const Op& op) { return has_effects(ir, op, known); });
  known.emplace(id, any);
  return any;
}

bool has_effects(const Ir& ir, const Op& op, std::map<GraphId, bool>& known) {
  return !op.effects.empty() ||
         std::any_of(op.callees.begin(), op.callees.end(),
                     [&](GraphId callee) { return has_effects(ir, callee, known); });
}

bool calls_any(const Op& op, const std::set<GraphId>& graphs) {
  return std::any_of(op.callees.begin(), op.callees.end(),
                     [&](GraphId id) { return graphs.contains(id); });
}

}  // namespace

OpId GraphEditor::next_op(const Ir& ir) { return ir.graph(GraphId(0)).ir_->next_op; }

GraphEditor::Growth GraphEditor::growth() const {
  const IrState& state = *graph_.ir_;
  Growth growth{{graph_.id_}, {}};
  std::vector<GraphId> rest{graph_.id_};
  while (!rest.empty()) {
    const auto callers = state.callers.find(rest.back());
    rest.pop_back();
    if (callers == state.callers.end()) continue;
    for (const GraphId caller : callers->second) {
      for (const Op& op : state.graphs[caller]->ops_) {
        if (op.callees.empty() || !calls_any(op, growth.graphs)) continue;
        growth.callers.insert(caller);
        for (const GraphId callee : op.callees) {
          if (growth.graphs.insert(callee).second) rest.push_back(callee);
        }
      }
    }
  }
  return growth;
}

GraphEditor::Mark GraphEditor::mark() const {
  const IrState& state = *graph_.ir_;
  Mark mark{
      state.next_op, state.next_graph_number, state.next_tensor_suffix, state.graphs.size(), {}};
  const auto add = [&](GraphId id) {
    const Graph& g = *state.graphs[id];
    mark.graphs.insert({id,
                        {g.tensors_.size(), g.storages_.size(), g.inputs_.size(), g.outputs_.size(),
                         g.appended_outputs_.size()}});
  };
  std::set<GraphId> called{graph_.id_};
  std::vector<GraphId> rest{graph_.id_};
  while (!rest.empty()) {
    Graph& g = *state.graphs[rest.back()];
    rest.pop_back();
    const Growth growth = GraphEditor(g).growth();
    for (const GraphId id : growth.graphs) add(id);
    for (const GraphId id : growth.callers) add(id);
    for (const Op& op : g.ops_) {
      for (const GraphId callee : op.callees) {
        if (called.insert(callee).second) rest.push_back(callee);
      }
    }
  }
  return mark;
}

void GraphEditor::roll_back(const Ir& ir, const Mark& mark) {
  IrState& state = *ir.graph(GraphId(0)).ir_;
  state.graphs.resize(mark.graph_count);
  state.next_op = mark.next_op;
  state.next_graph_number = mark.next_graph_number;
  state.next_tensor_suffix = mark.next_tensor_suffix;
  const auto removed = GraphId(mark.graph_count);
  state.callers.erase(state.callers.lower_bound(removed), state.callers.end());
  for (auto& [callee, callers] : state.callers)
    callers.erase(callers.lower_bound(removed), callers.end());
  for (const auto& [id, counts] : mark.graphs) {
    Graph& g = *state.graphs[id];
    if (g.tensors_.size() == counts.tensors && g.outputs_.size() == counts.outputs) continue;
    g.ops_.erase_if([&](const Op& op) { return op.id >= mark.next_op; });
    const TensorId added(counts.tensors);
    for (const OpIndex k : g.ops_.ids()) {
      Op& op = g.ops_[k];
      std::erase_if(op.outputs, [&](TensorId t) { return t >= added; });
      std::erase_if(op.inputs, [&](const Operand& o) { return o.tensor >= added; });
    }
    for (const TensorId t : IdRange(added, g.tensors_.end_id()))
      g.by_name_.erase(g.tensors_[t].name);
    g.tensors_.truncate(counts.tensors);
    g.storages_.truncate(counts.storages);
    g.inputs_.resize(counts.inputs);
    g.outputs_.resize(counts.outputs);
    g.appended_outputs_.resize(counts.appended_outputs);
    GraphEditor(g).renumber();
  }
}

void GraphEditor::append_outputs(const Tensors& outputs) {
  if (outputs.empty()) return;
  for (const Tensor& t : outputs) graph_.check_operand(t, "output");
  auto& graphs = graph_.ir_->graphs;

  // Both branches of a conditional must have the same outputs, so outputs are appended to both.
  const auto [growing, callers] = growth();
  for (const GraphId caller : callers) {
    for (const Op& op : graphs[caller]->ops_) {
      if (op.def != &builtin::loop() || !calls_any(op, growing)) continue;
      fail(ErrorKind::kUsage,
           "graph {} is the body of {} in graph {}: it cannot get further outputs",
           graphs[op.callees[0]]->name_, op.label(), graphs[caller]->name_);
    }
  }
  const auto append = [](Graph& g, TensorId t) {
    g.appended_outputs_.push_back(g.outputs_.size());
    g.outputs_.push_back(t);
  };
  for (const Tensor& t : outputs) append(graph_, t.id());
  for (const GraphId id : growing) {
    if (id == graph_.id_) continue;
    Graph& other = *graphs[id];
    for (const Tensor& t : outputs) {
      const builtin::InitOptions zeros{.shape = t.shape(), .dtype = t.dtype()};
      append(other,
             other.emit(builtin::init(), {}, to_attrs(zeros), {.name = "no_activation"})[0].id());
    }
  }
  for (const GraphId caller : callers) {
    Graph* const g = graphs[caller].get();
    for (const OpIndex k : g->ops_.ids()) {
      Op& op = g->ops_[k];
      if (op.callees.empty() || !calls_any(op, growing)) continue;
      for (const Tensor& t : outputs) {
        const TensorId id =
            g->add_root(fmt::format("autodiff_output__t{}", g->ir_->next_tensor_suffix++), t.spec(),
                        TensorKind::kResult);
        g->storages_.back().writers.front().op = op.id;
        TensorInfo& info = g->tensors_[id];
        info.producer = op.id;
        info.output = static_cast<int>(op.outputs.size());
        op.outputs.push_back(id);
      }
    }
  }
}

Tensor GraphEditor::append_buffer(const TensorSpec& spec, const std::string& name) {
  const IrState& state = *graph_.ir_;
  const auto found = state.callers.find(graph_.id_);
  const std::set<GraphId> callers =
      found == state.callers.end() ? std::set<GraphId>{} : found->second;
  for (const GraphId id : callers) {
    Graph& caller = *state.graphs[id];
    std::vector<Placement> placements;
    std::vector<TensorId> operands;
    for (const Op& op : caller.ops_) {
      if (std::find(op.callees.begin(), op.callees.end(), graph_.id_) == op.callees.end()) continue;
      require(op.def != &builtin::branch(),
              "graph {} is a branch of {} in graph {}: it cannot get further inputs", graph_.name_,
              op.label(), caller.name_);
      placements.push_back({OpId(), op.id, Placement::Side::kBefore});
    }
    for (Placement& p : placements) {
      const Guise guise(caller, caller.op(p.anchor));
      const builtin::InitOptions options{
          .shape = spec.shape, .dtype = spec.dtype, .undefined = true};
      operands.push_back(
          caller.emit(builtin::init(), {}, to_attrs(options), {.name = name})[0].id());
      p.op = caller.ops_.back().id;
    }
    for (size_t k = 0; k < placements.size(); ++k) {
      Operand operand;
      operand.tensor = operands[k];
      operand.mode = Mode::kUpdate;
      caller.ops_[caller.op_index(placements[k].anchor)].inputs.push_back(operand);
    }
    GraphEditor(caller).place(placements);
  }
  return graph_.input(spec, name, Pass::kByReference);
}

void GraphEditor::set_inputs(const Tensors& inputs) {
  std::vector<TensorId> ids;
  for (const Tensor& t : inputs) {
    SLUICE_CHECK(graph_.owns(t) && graph_.info(t).kind == TensorKind::kInput);
    ids.push_back(t.id());
  }
  graph_.inputs_ = std::move(ids);
}

void GraphEditor::rename(const Tensor& tensor, std::string name) {
  SLUICE_CHECK(graph_.owns(tensor));
  TensorInfo& info = graph_.tensors_[tensor.id()];
  if (info.name == name) return;
  graph_.by_name_.erase(info.name);
  info.name = graph_.unique_name(std::move(name));
  graph_.by_name_.emplace(info.name, tensor.id());
}

Tensor GraphEditor::share_constant(const Tensor& constant) {
  const TensorInfo& from = constant.graph().info(constant);
  SLUICE_CHECK(from.kind == TensorKind::kConstant);
  const auto value = from.constant;
  const TensorId id = graph_.add_root(from.name, from.spec, TensorKind::kConstant);
  graph_.tensors_[id].constant = value;
  return graph_.handle(id);
}

void GraphEditor::place(const std::vector<Placement>& placements) {
  if (placements.empty()) return;
  std::unordered_map<OpId, OpIndex> moved;
  std::unordered_map<OpId, std::vector<OpId>> before;
  std::unordered_map<OpId, std::vector<OpId>> after;
  for (const Placement& p : placements) {
    moved.emplace(p.op, graph_.op_index(p.op));
    (p.side == Placement::Side::kBefore ? before : after)[p.anchor].push_back(p.op);
  }
  for (const Placement& p : placements) SLUICE_CHECK(!moved.contains(p.anchor));
  std::vector<OpIndex> order;
  order.reserve(graph_.ops_.size());
  const auto add = [&](const std::unordered_map<OpId, std::vector<OpId>>& group, OpId anchor) {
    const auto found = group.find(anchor);
    if (found == group.end()) return;
    for (const OpId id : found->second) order.push_back(moved.at(id));
  };
  for (const OpIndex i : graph_.ops_.ids()) {
    const OpId id = graph_.ops_[i].id;
    if (moved.contains(id)) continue;
    add(before, id);
    order.push_back(i);
    add(after, id);
  }
  SLUICE_CHECK(order.size() == graph_.ops_.size());
  graph_.ops_.select(order);
  renumber();
}

void GraphEditor::rewrite(OpId id, const OpDef& def, const Tensors& operands, Attrs attrs) {
  Op& op = graph_.ops_[graph_.op_index(id)];
  op.def = &def;
  op.attrs = std::move(attrs);
  op.inputs.clear();
  for (const Tensor& t : operands) {
    graph_.check_operand(t, def.name);
    Operand operand;
    operand.tensor = t.id();
    operand.mode = def.input_mode(static_cast<int>(op.inputs.size()));
    op.inputs.push_back(operand);
  }
  renumber();
}

void GraphEditor::remove_dead_ops() {
  const Ir ir = graph_.ir();
  std::map<GraphId, bool> effects;
  // Liveness is tracked per storage: an op that writes a live storage is live too.
  Ids<StorageId, bool> live(graph_.storages_.size(), false);
  const auto mark = [&](TensorId t) { live[graph_.info(t).storage] = true; };
  const auto is_live = [&](TensorId t) { return live[graph_.info(t).storage]; };
  for (const TensorId t : graph_.outputs_) mark(t);
  for (const TensorId t : graph_.inputs_) {
    if (graph_.info(t).pass == Pass::kByReference) mark(t);
  }
  for (const Tensor& t : graph_.variables()) mark(t.id());
  std::unordered_set<OpId> dead;
  for (size_t i = graph_.ops_.size(); i-- > 0;) {
    const Op& op = graph_.ops_[i];
    const bool used = std::any_of(op.outputs.begin(), op.outputs.end(), is_live) ||
                      std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) {
                        return o.new_version.valid() && is_live(o.tensor);
                      });
    if (!used && !has_effects(ir, op, effects)) {
      dead.insert(op.id);
      continue;
    }
    for (const Operand& o : op.inputs) mark(o.tensor);
  }
  remove_ops(dead);
}

void GraphEditor::remove_ops(const std::unordered_set<OpId>& ops) {
  if (ops.empty()) return;
  graph_.ops_.erase_if([&](const Op& op) { return ops.contains(op.id); });
  std::erase_if(graph_.mirrors_,
                [&](const Graph::Mirror& m) { return ops.contains(graph_.info(m.view).producer); });
  renumber();
}

Ids<TensorId, TensorId> GraphEditor::compact(TensorId first) {
  Ids<TensorId, bool> used(graph_.tensors_.size(), false);
  for (const TensorId t : used.ids()) {
    used[t] = t < first || graph_.info(t).kind == TensorKind::kVariable;
  }
  for (const TensorId t : graph_.inputs_) used[t] = true;
  for (const TensorId t : graph_.outputs_) used[t] = true;
  for (const Op& op : graph_.ops_) {
    for (const Operand& o : op.inputs) used[o.tensor] = true;
    for (const TensorId t : op.outputs) used[t] = true;
  }
  Ids<TensorId, TensorId> tensor_at(used.size());
  Ids<StorageId, StorageId> storage_at(graph_.storages_.size());
  std::vector<TensorId> tensors;
  std::vector<StorageId> storages;
  for (const TensorId t : used.ids()) {
    if (!used[t]) {
      graph_.by_name_.erase(graph_.tensors_[t].name);
      continue;
    }
    tensor_at[t] = TensorId(tensors.size());
    tensors.push_back(t);
  }
  graph_.tensors_.select(tensors);
  for (const TensorId t : graph_.tensors_.ids()) {
    TensorInfo& info = graph_.tensors_[t];
    StorageId& moved = storage_at[info.storage];
    if (!moved.valid()) {
      moved = StorageId(storages.size());
      storages.push_back(info.storage);
    }
    info.storage = moved;
  }
  const auto move = [&](TensorId& t) {
    if (t.valid()) t = tensor_at[t];
  };
  graph_.storages_.select(storages);
  for (const StorageId id : graph_.storages_.ids()) {
    Storage& s = graph_.storages_[id];
    move(s.root);
    SLUICE_CHECK(s.root.valid());
    for (Storage::Write& w : s.writers) move(w.handle);
  }
  for (TensorId& t : graph_.inputs_) move(t);
  for (TensorId& t : graph_.outputs_) move(t);
  for (const OpIndex i : graph_.ops_.ids()) {
    Op& op = graph_.ops_[i];
    for (Operand& o : op.inputs) move(o.tensor);
    for (TensorId& t : op.outputs) move(t);
  }
  for (auto& [name, t] : graph_.by_name_) move(t);
  return tensor_at;
}

void GraphEditor::renumber() {
  for (const StorageId s : graph_.storages_.ids()) graph_.storages_[s].writers.resize(1);
  graph_.op_index_.clear();
  for (const OpIndex i : graph_.ops_.ids()) {
    Op& op = graph_.ops_[i];
    graph_.op_index_.emplace(op.id, i);
    const auto storage_of = [&](TensorId t) -> Storage& {
      return graph_.storages_[graph_.info(t).storage];
    };
    for (Operand& o : op.inputs) {
      o.version = storage_of(o.tensor).version();
      if (o.mode != Mode::kRead) o.new_version = Version(o.version + 1);
    }
    for (const Operand& o : op.inputs) {
      if (o.mode != Mode::kRead) storage_of(o.tensor).writers.push_back({op.id, {}});
    }
    for (const Alias& a : op.def->aliases) {
      const TensorId t = at(op.outputs, a.output);
      Storage& storage = storage_of(t);
      graph_.tensors_[t].version = storage.version();
      if (at(op.inputs, a.input).mode != Mode::kRead) storage.writers.back().handle = t;
    }
  }
}

GraphEditor::Guise::Guise(Graph& graph, const Op& origin)
    : graph_(graph),
      previous_(std::exchange(graph.here_, std::make_unique<Provenance>(*origin.provenance))),
      previous_device_(std::exchange(graph.device_, origin.device)) {
  if (graph.here_->role == OpRole::kForward) graph.here_->role = previous_->role;
}

GraphEditor::Guise::~Guise() {
  graph_.here_ = std::move(previous_);
  graph_.device_ = previous_device_;
}

}  // namespace sluice
