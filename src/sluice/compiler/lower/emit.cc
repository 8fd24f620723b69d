#include "sluice/compiler/lower/emit.h"

#include <algorithm>
#include <map>

#include "sluice/base/checked.h"
#include "sluice/compiler/analysis/body_facts.h"
#include "sluice/compiler/analysis/indices.h"
#include "sluice/compiler/lower/provenance.h"
#include "sluice/compiler/lower/stored_entries.h"
#include "sluice/compiler/lower/tables.h"
#include "sluice/compiler/rewriter.h"
#include "sluice/planner/solve.h"

namespace sluice::compiler {
namespace {

// Text that distinguishes the functions of one graph by role, device, used results and layouts of
// parameters.
std::string memo(const Body& body) {
  if (body.is_entry()) return fmt::format("{} on {}", body.name, body.device);
  std::string text = fmt::format("graph {} device {} {}used ", body.graph, body.device,
                                 body.role == Role::kLoopBody ? "loop " : "");
  for (const ValueIndex v : body.results) text += v == kNone ? '0' : '1';
  for (size_t i = 0; i < body.params.size(); ++i) {
    const Layout& layout = body.value(body.params[i].in).layout;
    if (layout != Layout{}) text += fmt::format(" {} {}", i, to_string(layout));
  }
  return text;
}

class Emitter {
 public:
  Emitter(BodyId id, Program& program, const FactTable& facts, Tables& tables, const Target& target)
      : body_(program.body(id)),
        program_(program),
        storage_(program.lowered[id].storage),
        choices_(program.lowered[id].choices),
        facts_(facts),
        sequences_(facts[id].sequences),
        tables_(tables),
        target_(target),
        exe_(program.executable),
        value_ids_(storage_.tenants.size(), exe::kNoValue),
        frames_(body_.nodes.size(), 0),
        provenances_(provenances_of(body_, tables)) {}

  exe::Function run() {
    function_.name = body_.name;
    function_.device = exe::DeviceId(body_.device);
    function_.index_params = static_cast<int32_t>(body_.index_params.size());
    function_.memo = memo(body_);
    if (!body_.is_entry()) {
      for (const SequenceUse& use : sequences_)
        base_[use.sequence] = exe::IndexExpr::param(function_.index_params++);
    }
    count_steps();
    plan_frame();
    add_params();
    for (const NodeId n : body_.nodes.ids()) emit(n);
    return std::move(function_);
  }

  // The first value that each of the `count` buffers of the function holds, if a step has it.
  std::vector<exe::ValueId> values_of_buffers(size_t count) const {
    std::vector<exe::ValueId> values;
    for (const ValueIndex v : held_) values.push_back(value_ids_[storage_.tenant_of[v]]);
    values.resize(count, exe::kNoValue);  // Frames of callees hold none.
    return values;
  }

  // The final values of variables after the program of an entry, also of remote ones.
  std::vector<exe::Final> finals() {
    std::vector<exe::Final> finals;
    for (const auto& [variable, v] : body_.variables) finals.push_back({variable, value_id(v)});
    for (const exe::VariableId v : exe_.variables.ids()) {
      const exe::ValueId last = stored_.find(exe_.variables[v].buffer, exe_.variables[v].entry);
      if (last != exe::kNoValue) finals.push_back({v, last});
    }
    return finals;
  }

 private:
  int64_t slot_stride(const Block& block) const {
    return round_up(block.bytes, target_.alignment());
  }
  int64_t block_bytes(const Block& block) const {
    return block.ring == 0 ? block.bytes : block.ring * slot_stride(block);
  }

  std::string block_name(const Block& block) const {
    return body_.value(storage_.tenants[block.tenants.front()].root).tensor;
  }

  // Index of the step that a node becomes. Views do not become steps. The index for the end of the
  // body is the number of steps.
  int64_t step_of(NodeId node) const { return node.valid() ? steps_[node] : 0; }

  void count_steps() {
    steps_.push_back(0);
    for (const Node& node : body_.nodes)
      steps_.push_back(steps_.back() + (node.is<Node::View>() ? 0 : 1));
  }

  void plan_frame() {
    planner::Problem problem;
    std::vector<Block*> planned;
    for (Block& block : storage_.blocks) {
      if (block.location != Block::Location::kFrame || block.tenants.empty()) continue;
      planner::Buffer buffer;
      buffer.size = block_bytes(block);
      buffer.alignment = target_.alignment();
      for (const TenantId t : block.tenants) {
        const Tenant& tenant = storage_.tenants[t];
        buffer.lifetime.push_back({step_of(tenant.begin), step_of(tenant.end) + 1});
      }
      merge(buffer.lifetime, block.ring > 0);
      problem.buffers.push_back(std::move(buffer));
      planned.push_back(&block);
    }
    planner::Problem through_calls = problem;
    std::vector<NodeId> calls;
    for (const NodeId n : body_.nodes.ids()) {
      int64_t bytes = 0;
      int64_t bound = 0;
      for_each_callee(body_.nodes[n], [&](BodyId callee) {
        bytes = std::max(bytes, function_of(callee).frame_bytes);
        bound = std::max(bound, function_of(callee).frame_bound);
      });
      if (bytes == 0) continue;
      const int64_t at = step_of(n);
      problem.buffers.push_back({"frame", {{at, at + 1}}, bytes, target_.alignment(), {}, {}});
      through_calls.buffers.push_back(
          {"frame", {{at, at + 1}}, bound, target_.alignment(), {}, {}});
      calls.push_back(n);
    }
    const planner::Solution solution = planner::solve(problem);
    function_.frame_bytes = solution.height;
    function_.frame_bound = planner::live_set_bound(through_calls);
    for (size_t i = 0; i < planned.size(); ++i) {
      planned[i]->offset = solution.offsets[i];
      held_.push_back(first_held(storage_, *planned[i]));
      const auto& life = problem.buffers[i].lifetime;
      function_.buffers.push_back({block_name(*planned[i]), solution.offsets[i],
                                   problem.buffers[i].size, life.front().begin,
                                   std::min(life.back().end, steps_.back())});
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t b = planned.size() + i;
      frames_[calls[i]] = solution.offsets[b];
      const int64_t at = step_of(calls[i]);
      std::string name;
      for_each_callee(body_.nodes[calls[i]], [&](BodyId callee) {
        if (name.empty()) name = function_of(callee).name;
      });
      function_.buffers.push_back(
          {"frame of " + name, solution.offsets[b], problem.buffers[b].size, at, at + 1});
    }
  }

  static void merge(std::vector<planner::Interval>& life, bool whole) {
    std::sort(life.begin(), life.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<planner::Interval> merged;
    for (const planner::Interval& i : life) {
      if (!merged.empty() && (whole || i.begin <= merged.back().end)) {
        merged.back().end = std::max(merged.back().end, i.end);
      } else {
        merged.push_back(i);
      }
    }
    life = std::move(merged);
  }

  exe::ValueId value_id(ValueIndex v) {
    const TenantId tenant = storage_.tenant_of[v];
    exe::ValueId& id = value_ids_[tenant];
    if (id != exe::kNoValue) return id;
    const ValueIndex own = storage_.tenants[tenant].root;
    const BodyValue& root = body_.value(own);
    if (root.source == BodyValue::Source::kVariable)
      return id = tables_.variable_value(exe::VariableId(root.index));
    if (root.source == BodyValue::Source::kConstant)
      return id = tables_.constant_value(ConstantIndex(root.index), exe::DeviceId(body_.device));
    const int32_t provenance = provenances_[own];
    return id = tables_.add_value(root.tensor, root.version, provenance);
  }

  exe::Address address(ValueIndex v) {
    const Tenant& tenant = storage_.tenant(v);
    const Block& block = storage_.blocks[tenant.block];
    exe::Address at;
    switch (block.location) {
      case Block::Location::kFrame:
        at.base = exe::Address::Base::kFrame;
        at.offset = block.offset + tenant.slot * slot_stride(block);
        break;
      case Block::Location::kParam:
        at.base = exe::Address::Base::kParam;
        at.index = block.index;
        break;
      case Block::Location::kResult:
        at.base = exe::Address::Base::kParam;
        at.index = sluice::at(result_param_, block.index);
        break;
      case Block::Location::kVariable:
        return tables_.variable(exe::VariableId(block.index));
      case Block::Location::kConstant:
        return tables_.constant(ConstantIndex(block.index), exe::DeviceId(body_.device));
    }
    return at;
  }

  exe::Operand operand(ValueIndex v, const TensorSpec& spec, exe::Access access) {
    exe::Operand o;
    o.at = address(v);
    const Layout& layout = body_.value(v).layout;
    o.bytes = target_.buffer_bytes(spec, layout);
    o.access = access;
    o.value = value_id(v);
    o.spec = spec;
    o.layout = to_string(layout);
    return o;
  }

  void add_params() {
    for (size_t i = 0; i < body_.params.size(); ++i) {
      const BodyParam& p = body_.params[i];
      exe::Param param;
      param.name = p.name;
      const BodyValue& value = body_.value(p.in);
      param.spec = value.spec;
      param.bytes = target_.buffer_bytes(value.spec, value.layout);
      param.layout = to_string(value.layout);
      param.value = value_id(p.in);
      if (p.out != kNone) {
        param.access = exe::Access::kUpdate;
        param.made = value_id(p.out);
      }
      function_.params.push_back(std::move(param));
    }
    result_param_.assign(body_.results.size(), -1);
    for (size_t r = 0; r < body_.results.size(); ++r) {
      if (body_.results[r] == kNone) continue;
      result_param_[r] = static_cast<int32_t>(function_.params.size());
      exe::Param param;
      param.name = fmt::format("result{}", r);
      param.access = exe::Access::kWrite;
      param.spec = body_.value(body_.results[r]).spec;
      param.bytes = param.spec.bytes();
      param.value = value_id(body_.results[r]);
      function_.params.push_back(std::move(param));
    }
  }

  void emit(NodeId n) {
    const Node& node = body_.nodes[n];
    if (node.is<Node::View>()) return;
    exe::Step step;
    step.origin = node.origin;
    step.where = node.where();
    if (has_provenance(node)) step.provenance = tables_.row_of(provenances_of(node));
    struct Lower {
      Emitter& e;
      const Node& node;
      NodeId n;
      using Body = decltype(exe::Step::body);
      Body operator()(const Node::Kernel&) const { return e.kernel(node, name_of(node), n); }
      Body operator()(const Node::Copy&) const { return e.kernel(node, "Copy", n); }
      Body operator()(const Node::Index&) const { return e.kernel(node, "Index", n); }
      Body operator()(const Node::View&) const { return {}; }
      Body operator()(const Node::Call& c) const { return e.call(node, c, n); }
      Body operator()(const Node::Loop& l) const { return e.loop(node, l, n); }
      Body operator()(const Node::Branch& b) const { return e.branch(node, b, n); }
      Body operator()(const Node::Transfer& t) const { return e.transfer(node, t); }
      Body operator()(const Node::Wait& w) const { return exe::Wait{w.queue, w.token}; }
      Body operator()(const Node::Send& s) const {
        exe::Send send{s.channel, e.next({Sequence::Of::kChannel, s.channel}),
                       e.operand(node.inputs[0], node.in_specs[0], exe::Access::kRead)};
        e.tables_.set_message(send.operand.value, s.message);
        return send;
      }
      Body operator()(const Node::Receive& r) const {
        exe::Receive receive{r.channel, e.next({Sequence::Of::kChannel, r.channel}),
                             e.operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite)};
        e.tables_.set_message(receive.operand.value, r.message);
        return receive;
      }
      Body operator()(const Node::Collective& c) const { return e.collective(node, c, n); }
    };
    step.body = std::visit(Lower{*this, node, n}, node.what);
    function_.steps.push_back(std::move(step));
  }

  exe::Kernel kernel(const Node& node, const std::string& op, NodeId n) {
    const KernelChoice& choice = choices_[n];
    exe::Kernel k;
    k.key = choice.key;
    k.op = op;
    if (const auto* own = node.as<Node::Kernel>()) {
      k.attrs = own->attrs;
      for (const OpStage& s : own->stages)
        k.stages.push_back({s.op->type, s.attrs, s.inputs, s.output, s.spec});
    }
    k.tasks = choice.tasks;
    k.workspace_bytes = choice.workspace_bytes;
    k.flops = choice.flops;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      k.operands.push_back(operand(node.inputs[i], node.in_specs[i], exe::Access::kRead));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      k.operands.push_back(operand(node.outputs[i], node.out_specs[i], exe::Access::kWrite));
    }
    for (size_t i = 0; i < choice.task_stride.size(); ++i)
      k.operands[i].task_stride = choice.task_stride[i];
    for (size_t i = 0; i < choice.task_pitch.size(); ++i)
      k.operands[i].task_pitch = choice.task_pitch[i];
    const auto ins = static_cast<int32_t>(node.inputs.size());
    for (const auto& [in, out] : choice.may_coincide) k.may_coincide.emplace_back(in, ins + out);
    for (const Tie& t : node.ties) {
      for (int32_t i = 0; i < ins; ++i) {
        const std::pair<int32_t, int32_t> pair(i, ins + t.output);
        const bool listed =
            std::find(k.may_coincide.begin(), k.may_coincide.end(), pair) != k.may_coincide.end();
        if (at(node.inputs, i) == t.into && !listed) k.may_coincide.push_back(pair);
      }
    }
    if (const auto* index = node.as<Node::Index>()) k.scalars = {index->value};
    return k;
  }

  exe::Collective collective(const Node& node, const Node::Collective& own, NodeId n) {
    exe::Collective c;
    c.op = node.def->type;
    c.attrs = own.attrs;
    c.group = own.group;
    c.sequence = next({Sequence::Of::kGroup, own.group});
    c.workspace_bytes =
        target_.collective_workspace(OpView(*node.def, own.attrs, node.in_specs, node.out_specs),
                                     program_.groups[own.group].size());
    c.operands.push_back(operand(node.inputs[0], node.in_specs[0], exe::Access::kRead));
    if (!node.ties.empty()) {
      c.operands[0].access = exe::Access::kUpdate;
      c.operands[0].made = value_id(node.outputs[0]);
      return c;
    }
    c.operands.push_back(operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite));
    for (const auto& [in, out] : choices_[n].may_coincide) c.may_coincide.emplace_back(in, 1 + out);
    return c;
  }

  // Index arguments of a call: first those of the node. Then, for each sequence of the callee, the
  // number of its uses before the call, or before the current iteration of a loop.
  std::vector<exe::IndexExpr> index_arguments(const Node& node, BodyId callee) {
    std::vector<exe::IndexExpr> args;
    if (node.call() != nullptr) args = node.call()->index_args;
    for (const SequenceUse& use : facts_[callee].sequences) {
      exe::IndexExpr at = reached(use.sequence);
      if (node.is<Node::Loop>()) at = at + exe::IndexExpr::iteration() * exe::IndexExpr(use.count);
      args.push_back(at);
    }
    return args;
  }

  exe::IndexExpr reached(const Sequence& sequence) {
    return base_[sequence] + exe::IndexExpr(used_[sequence]);
  }

  // Returns the number of this use of a sequence, and counts the use.
  exe::IndexExpr next(const Sequence& sequence) {
    const exe::IndexExpr number = reached(sequence);
    ++used_[sequence];
    return number;
  }

  void pass_sequences(BodyId callee, int64_t times) {
    for (const SequenceUse& use : facts_[callee].sequences)
      used_[use.sequence] += times * use.count;
  }

  exe::Address frame_at(NodeId n) const {
    exe::Address at;
    at.offset = frames_[n];
    return at;
  }

  // Returns a call of `callee` with inputs [first, last) as arguments.
  exe::Call call_of(const Node& node, NodeId n, BodyId callee, size_t first, size_t last) {
    exe::Call c;
    for (const int32_t buffer : facts_[callee].stores_to) stored_.forget(exe::BufferId(buffer - 1));
    c.function = program_.lowered.at(callee).function;
    c.frame = frame_at(n);
    const auto* call = node.call();
    for (size_t i = first; i < last; ++i)
      c.args.push_back(operand(node.inputs[i], node.in_specs[i], exe::Access::kRead));
    for_each_updated(node, [&](size_t input, size_t output) {
      exe::Operand& o = c.args[exe::ParamId(input)];
      o.access = exe::Access::kUpdate;
      o.made = value_id(node.outputs[output]);
    });
    const int32_t results = call != nullptr ? call->results : std::ssize(node.outputs);
    for (int32_t r = 0; r < results; ++r) {
      const ValueIndex v = at(node.outputs, r);
      if (v == kNone || !node.returns_result(r)) continue;
      c.args.push_back(operand(v, at(node.out_specs, r), exe::Access::kWrite));
    }
    c.index_args = index_arguments(node, callee);
    return c;
  }

  exe::Call call(const Node& node, const Node::Call& own, NodeId n) {
    exe::Call c = call_of(node, n, own.callee, 0, node.inputs.size());
    pass_sequences(own.callee, 1);
    return c;
  }

  exe::Loop loop(const Node& node, const Node::Loop& own, NodeId n) {
    exe::Loop l;
    l.trips = own.trips;
    l.body = call_of(node, n, own.callee, 0, node.inputs.size());
    exe::ParamId result(node.inputs.size());  // Argument of the next result.
    for (const Rotation& rotation : rotations_of(own)) {
      const Block& block = storage_.block(at(node.inputs, rotation.carried[0]));
      const auto put = [&](exe::ParamId arg, int32_t first) {
        if (block.ring > 0) l.body.args[arg].at = in_ring(block, first);
      };
      for (size_t i = 0; i < rotation.carried.size(); ++i) {
        const int32_t k = rotation.carried[i];
        put(exe::ParamId(k), rotation.first_slot(i));
        if (own.returns_result(k)) put(result, rotation.result_slot());
        l.carried.push_back(own.returns_result(k) ? exe::Carry{exe::ParamId(k), result++}
                                                  : rotated(node, own, k, l.body));
      }
    }
    for (const int32_t u : own.updated) l.carried.push_back({exe::ParamId(u), exe::ParamId(u)});
    if (own.exit >= 0) {
      l.condition = exe::ParamId(own.conditions[0]);
      l.exit = own.exit;
    }
    pass_sequences(own.callee, own.trips);
    return l;
  }

  // The carry of a value that becomes the last version of another parameter.
  exe::Carry rotated(const Node& node, const Node::Loop& own, int32_t k, exe::Call& body) {
    const exe::ValueId after = value_id(at(node.outputs, k));
    const exe::ParamId from(at(own.rotates, k));
    const bool updated = at(program_.body(own.callee).params, from.value()).out != kNone;
    if (updated) body.args[from].access = exe::Access::kUpdate;
    if (updated) body.args[from].made = after;
    return {exe::ParamId(k), from, updated ? exe::kNoValue : after};
  }

  // The slot of a ring that is `first` in iteration 0 of a loop, and one further in each iteration.
  exe::Address in_ring(const Block& block, int32_t first) const {
    exe::Address at;
    at.offset = block.offset;
    at.depth = block.ring;
    at.stride = slot_stride(block);
    at.slot = exe::IndexExpr::iteration() + exe::IndexExpr(first);
    return at;
  }

  exe::Branch branch(const Node& node, const Node::Branch& own, NodeId n) {
    exe::Branch b;
    b.condition = operand(node.inputs[0], node.in_specs[0], exe::Access::kRead);
    b.then_call = call_of(node, n, own.callees[0], 1, own.else_begin());
    b.else_call = call_of(node, n, own.callees[1], own.else_begin(), node.inputs.size());
    return b;
  }

  exe::Issue transfer(const Node& node, const Node::Transfer& own) {
    exe::Issue issue;
    issue.queue = own.queue;
    issue.token = own.token;
    using Action = Effect::Action;
    const Action kind = own.effect.kind;
    if (const auto stream = sequence_of(node)) {
      issue.object = own.effect.id;
      issue.entry = next(*stream);
    } else {
      issue.object = own.effect.id - 1;  // Remote buffers are numbered from 1 in the IR.
      if (const auto entry = entry_of(own)) {
        issue.entry = *entry;
      } else {
        issue.entry_from = operand(node.inputs.back(), node.in_specs.back(), exe::Access::kRead);
      }
    }
    if (kind == Action::kStreamRead || kind == Action::kRemoteLoad) {
      issue.kind = kind == Action::kStreamRead ? exe::TransferKind::kStreamIn
                                               : exe::TransferKind::kRemoteLoad;
      issue.memory = operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite);
    } else {
      issue.kind = kind == Action::kStreamWrite ? exe::TransferKind::kStreamOut
                                                : exe::TransferKind::kRemoteStore;
      issue.memory = operand(node.inputs[0], node.in_specs[0], exe::Access::kRead);
    }
    if (!sequence_of(node)) stored_.track(issue);
    return issue;
  }

  const exe::Function& function_of(BodyId body) const {
    return exe_.functions[program_.lowered.at(body).function];
  }

  const Body& body_;
  Program& program_;
  Storage& storage_;
  const Ids<NodeId, KernelChoice>& choices_;
  const FactTable& facts_;
  const std::vector<SequenceUse>& sequences_;
  Tables& tables_;
  const Target& target_;
  exe::Executable& exe_;
  exe::Function function_;
  Ids<TenantId, exe::ValueId> value_ids_;
  Ids<NodeId, int64_t> frames_;
  /// For each value: provenance row of the op that computes it.
  Ids<ValueIndex, int32_t> provenances_;
  std::vector<ValueIndex> held_;  ///< For each buffer: the first value that it holds.
  Ids<NodeId, int64_t> steps_;    ///< Number of steps before each node; last element: all steps.
  std::vector<int32_t> result_param_;
  std::map<Sequence, exe::IndexExpr> base_;
  std::map<Sequence, int64_t> used_;
  StoredEntries stored_;
};

// Adds variables that live in a remote buffer to which the program stores, but whose final value is
// unknown.
void add_remote_finals(const std::set<int32_t>& stores_to, const exe::Executable& e,
                       exe::Program& program) {
  for (const exe::VariableId v : e.variables.ids()) {
    const exe::VariablePlan& plan = e.variables[v];
    if (plan.buffer < 0 || !stores_to.contains(plan.buffer + 1)) continue;
    const bool known = std::any_of(program.finals.begin(), program.finals.end(),
                                   [&](const exe::Final& f) { return f.variable == v; });
    if (!known) program.finals.push_back({v, exe::kNoValue});
  }
}

}  // namespace

int64_t emit_executable(Program& program, const Context& context) {
  Tables tables(program, context);
  const FactTable facts(program);
  exe::Executable& e = program.executable;
  int64_t buffers = 0;
  e.origins.rows_of_blocks = program.ir.rows_of_blocks();
  std::map<BodyId, std::vector<exe::Final>> finals;
  for (const BodyId id : callees_first(program)) {
    const Body& body = program.body(id);
    Emitter emitter(id, program, facts, tables, context.target(body));
    exe::Function function = emitter.run();
    buffers += static_cast<int64_t>(function.buffers.size());
    for (const exe::Step& step : function.steps) {
      if (const auto* kernel = std::get_if<exe::Kernel>(&step.body))
        tables.reserve_workspace(function.device, kernel->workspace_bytes);
      if (const auto* collective = std::get_if<exe::Collective>(&step.body))
        tables.reserve_workspace(function.device, collective->workspace_bytes);
      if (const auto* issue = std::get_if<exe::Issue>(&step.body))
        tables.reserve_staging(function.device, issue->queue, issue->memory.bytes);
      if (exe::reads_on_host(step)) tables.reserve_staging(function.device, 0, 0);
    }
    if (body.is_entry()) finals[id] = emitter.finals();
    program.lowered[id].function = e.functions.push_back(std::move(function));
    e.origins.buffers.push_back(emitter.values_of_buffers(e.functions.back().buffers.size()));
  }
  for (const EntryBodies& entry : program.entries) {
    exe::Program p{.name = entry.name};
    std::set<int32_t> stores_to;
    for (const BodyId id : entry.bodies) {
      const exe::DeviceId device(program.body(id).device);
      const exe::FunctionId function = program.lowered[id].function;
      p.starts.push_back({device, function, tables.frames(device)});
      tables.reserve_frame(device, e.functions[function].frame_bytes);
      p.finals.insert(p.finals.end(), finals[id].begin(), finals[id].end());
      for (const SequenceUse& use : facts[id].sequences) {
        const auto [of, number] = use.sequence;
        if (of == Sequence::Of::kStream) p.streams.push_back({exe::StreamId(number), use.count});
        if (of == Sequence::Of::kGroup)
          p.collectives.push_back({device, exe::GroupId(number), use.count});
      }
      stores_to.insert(facts[id].stores_to.begin(), facts[id].stores_to.end());
    }
    add_remote_finals(stores_to, e, p);
    std::sort(p.streams.begin(), p.streams.end(),
              [](const auto& a, const auto& b) { return a.stream < b.stream; });
    std::sort(p.finals.begin(), p.finals.end(),
              [](const exe::Final& a, const exe::Final& b) { return a.variable < b.variable; });
    e.programs.push_back(std::move(p));
  }
  carry_provenances(e);
  return buffers;
}

}  // namespace sluice::compiler
