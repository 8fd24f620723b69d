#include "sluice/compiler/emit_function.h"

#include <algorithm>
#include <map>

#include "sluice/base/checked.h"
#include "sluice/compiler/indices.h"
#include "sluice/ir/builtin.h"
#include "sluice/planner/solve.h"

namespace sluice::compiler {
namespace {

// What an entry of a remote buffer holds since a store.
struct Stored {
  int32_t buffer;
  exe::IndexExpr entry;
  exe::ValueId value;
};

class Emitter {
 public:
  Emitter(const Body& body, Placement& placement, const std::vector<KernelChoice>& choices,
          const std::vector<std::vector<int32_t>>& callees, const EmitContext& context)
      : body_(body),
        placement_(placement),
        choices_(choices),
        callees_(callees),
        context_(context),
        exe_(*context.executable),
        value_ids_(placement.contents.size(), exe::kNoValue),
        frames_(body.nodes.size(), 0) {}

  exe::Function run(exe::Program* program) {
    function_.name = body_.name;
    function_.device = body_.device;
    function_.index_params = static_cast<int32_t>(body_.index_inputs.size());
    if (!body_.is_entry) {
      for (const SequenceUse& use : (*context_.facts)[body_.graph].sequences)
        base_[use.sequence] = exe::IndexExpr::param(function_.index_params++);
    }
    count_steps();
    plan_frame();
    add_params();
    for (size_t n = 0; n < body_.nodes.size(); ++n) emit(static_cast<int32_t>(n));
    if (program != nullptr) {
      for (const auto& [variable, v] : body_.variables)
        program->finals.push_back({variable, value_id(v)});
      add_stored(program->finals);
      for (const auto& [sequence, count] : used_) {
        if (sequence.of == Sequence::Of::kGroup && count > 0)
          program->collectives.push_back({body_.device, sequence.id, count});
      }
    }
    return std::move(function_);
  }

 private:
  int64_t slot_stride(const Block& block) const {
    return round_up(block.bytes, context_.alignment);
  }
  int64_t block_bytes(const Block& block) const {
    return block.ring == 0 ? block.bytes : block.ring * slot_stride(block);
  }

  std::string block_name(const Block& block) const {
    return body_.value(placement_.contents[static_cast<size_t>(block.contents.front())].root)
        .tensor;
  }

  // Number of the step that a node becomes: views become none. The end of the body is the number of steps.
  int64_t step_of(int32_t node) const { return node < 0 ? 0 : steps_[static_cast<size_t>(node)]; }

  void count_steps() {
    steps_.push_back(0);
    for (const Node& node : body_.nodes)
      steps_.push_back(steps_.back() + (node.kind != Node::Kind::kView));
  }

  void plan_frame() {
    planner::Problem problem;
    std::vector<Block*> planned;
    for (Block& block : placement_.blocks) {
      if (block.place != Block::Place::kFrame || block.contents.empty()) continue;
      planner::Buffer buffer;
      buffer.size = block_bytes(block);
      buffer.alignment = context_.alignment;
      for (const int32_t c : block.contents) {
        const Content& content = placement_.contents[static_cast<size_t>(c)];
        buffer.lifetime.push_back({step_of(content.begin), step_of(content.end) + 1});
      }
      merge(buffer.lifetime, block.ring > 0);
      problem.buffers.push_back(std::move(buffer));
      planned.push_back(&block);
    }
    planner::Problem through_calls = problem;
    std::vector<size_t> calls;
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      int64_t bytes = 0;
      int64_t bound = 0;
      for (const int32_t f : callees_[n]) {
        bytes = std::max(bytes, exe_.functions[static_cast<size_t>(f)].frame_bytes);
        bound = std::max(bound, exe_.functions[static_cast<size_t>(f)].frame_bound);
      }
      if (bytes == 0) continue;
      const int64_t at = step_of(static_cast<int32_t>(n));
      problem.buffers.push_back({"frame", {{at, at + 1}}, bytes, context_.alignment, {}, {}});
      through_calls.buffers.push_back({"frame", {{at, at + 1}}, bound, context_.alignment, {}, {}});
      calls.push_back(n);
    }
    const planner::Solution solution = planner::solve(problem);
    function_.frame_bytes = solution.height;
    function_.frame_bound = planner::live_set_bound(through_calls);
    for (size_t i = 0; i < planned.size(); ++i) {
      planned[i]->offset = solution.offsets[i];
      const auto& life = problem.buffers[i].lifetime;
      function_.buffers.push_back({block_name(*planned[i]), solution.offsets[i],
                                   problem.buffers[i].size, life.front().begin,
                                   std::min(life.back().end, steps_.back())});
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t b = planned.size() + i;
      frames_[calls[i]] = solution.offsets[b];
      const int64_t at = step_of(static_cast<int32_t>(calls[i]));
      const auto& callee = exe_.functions[static_cast<size_t>(callees_[calls[i]][0])];
      function_.buffers.push_back(
          {"frame of " + callee.name, solution.offsets[b], problem.buffers[b].size, at, at + 1});
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
    const int32_t c = placement_.content_of[static_cast<size_t>(v)];
    exe::ValueId& id = value_ids_[static_cast<size_t>(c)];
    if (id != exe::kNoValue) return id;
    const BodyValue& root = body_.value(placement_.contents[static_cast<size_t>(c)].root);
    if (root.source == BodyValue::Source::kVariable) {
      id = context_.globals->variable_value(root.index);
    } else if (root.source == BodyValue::Source::kConstant) {
      id = context_.globals->constant_value(root.index, body_.device);
    } else {
      id = static_cast<exe::ValueId>(exe_.values.size());
      exe_.values.push_back({root.tensor, root.version});
    }
    return id;
  }

  exe::Address address(ValueIndex v) {
    const Content& content = placement_.content(v);
    const Block& block = placement_.blocks[static_cast<size_t>(content.block)];
    exe::Address at;
    switch (block.place) {
      case Block::Place::kFrame:
        at.base = exe::Address::Base::kFrame;
        at.offset = block.offset + content.slot * slot_stride(block);
        break;
      case Block::Place::kParam:
        at.base = exe::Address::Base::kParam;
        at.index = block.index;
        break;
      case Block::Place::kResult:
        at.base = exe::Address::Base::kParam;
        at.index = result_param_[static_cast<size_t>(block.index)];
        break;
      case Block::Place::kVariable:
        return context_.globals->variable(block.index);
      case Block::Place::kConstant:
        return context_.globals->constant(block.index, body_.device);
    }
    return at;
  }

  exe::Operand operand(ValueIndex v, const TensorSpec& spec, exe::Access access) {
    exe::Operand o;
    o.at = address(v);
    const Layout& layout = body_.value(v).layout;
    o.bytes = buffer_bytes(spec, layout);
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
      param.bytes = buffer_bytes(value.spec, value.layout);
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

  exe::Step begin(const Node& node) const {
    exe::Step step;
    step.origin = node.origin;
    step.where = node.where;
    return step;
  }

  void emit(int32_t n) {
    const Node& node = body_.nodes[static_cast<size_t>(n)];
    exe::Step step = begin(node);
    switch (node.kind) {
      case Node::Kind::kView:
        return;
      case Node::Kind::kKernel:
      case Node::Kind::kCopy:
      case Node::Kind::kIndex:
        step.body = kernel(node, choices_[static_cast<size_t>(n)]);
        break;
      case Node::Kind::kCall:
        step.body = call(node, n, callees_[static_cast<size_t>(n)][0], 0, node.inputs.size(), 0);
        break;
      case Node::Kind::kLoop:
        step.body = loop(node, n);
        break;
      case Node::Kind::kBranch:
        step.body = branch(node, n);
        break;
      case Node::Kind::kTransfer:
        step.body = transfer(node);
        break;
      case Node::Kind::kWait:
        step.body = exe::Wait{node.queue, node.token};
        break;
      case Node::Kind::kSend:
        step.body = exe::Send{node.channel, node.message,
                              operand(node.inputs[0], node.in_specs[0], exe::Access::kRead)};
        break;
      case Node::Kind::kReceive:
        step.body = exe::Receive{node.channel, node.message,
                                 operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite)};
        break;
      case Node::Kind::kCollective:
        step.body = collective(node, choices_[static_cast<size_t>(n)]);
        break;
    }
    function_.steps.push_back(std::move(step));
  }

  exe::Kernel kernel(const Node& node, const KernelChoice& choice) {
    exe::Kernel k;
    k.key = choice.key;
    k.op = node.kind == Node::Kind::kCopy    ? "Copy"
           : node.kind == Node::Kind::kIndex ? "Index"
                                             : name_of(node);
    k.attrs = node.attrs;
    for (const FusedOp::Stage& s : node.stages)
      k.stages.push_back({s.def->type, s.attrs, s.inputs, s.output, s.spec});
    k.tasks = choice.tasks;
    k.workspace_bytes = choice.workspace_bytes;
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
        if (node.inputs[static_cast<size_t>(i)] == t.into && !listed)
          k.may_coincide.push_back(pair);
      }
    }
    if (node.kind == Node::Kind::kIndex) k.scalars = {*node.index};
    return k;
  }

  exe::Collective collective(const Node& node, const KernelChoice& choice) {
    const Sequence group{Sequence::Of::kGroup, node.group};
    exe::Collective c;
    c.op = node.def->type;
    c.attrs = node.attrs;
    c.group = node.group;
    c.sequence = reached(group);
    ++used_[group];
    c.operands.push_back(operand(node.inputs[0], node.in_specs[0], exe::Access::kRead));
    if (!node.ties.empty()) {
      c.operands[0].access = exe::Access::kUpdate;
      c.operands[0].made = value_id(node.outputs[0]);
      return c;
    }
    c.operands.push_back(operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite));
    for (const auto& [in, out] : choice.may_coincide) c.may_coincide.emplace_back(in, 1 + out);
    return c;
  }

  // Index arguments of a callee: its own, then how far its sequences have come, `iterations` into a loop.
  std::vector<exe::IndexExpr> index_arguments(const Node& node, size_t callee) {
    std::vector<exe::IndexExpr> args = node.index_args;
    for (const SequenceUse& use : (*context_.facts)[node.callees[callee]].sequences) {
      exe::IndexExpr at = reached(use.sequence);
      if (node.kind == Node::Kind::kLoop)
        at = at + exe::IndexExpr::iteration() * exe::IndexExpr(use.count);
      args.push_back(at);
    }
    return args;
  }

  exe::IndexExpr reached(const Sequence& sequence) {
    return base_[sequence] + exe::IndexExpr(used_[sequence]);
  }

  void pass_sequences(GraphId callee, int64_t times) {
    for (const SequenceUse& use : (*context_.facts)[callee].sequences)
      used_[use.sequence] += times * use.count;
  }

  exe::Address frame_at(int32_t n) const {
    exe::Address at;
    at.offset = frames_[static_cast<size_t>(n)];
    return at;
  }

  exe::Call call(const Node& node, int32_t n, int32_t function, size_t first, size_t count,
                 size_t callee) {
    exe::Call c;
    for (const int32_t buffer : (*context_.facts)[node.callees[callee]].stores_to)
      forget_stored(buffer - 1);
    c.function = function;
    c.frame = frame_at(n);
    for (size_t i = first; i < first + count; ++i) {
      exe::Operand o = operand(node.inputs[i], node.in_specs[i], exe::Access::kRead);
      const auto u = std::find(node.updated.begin(), node.updated.end(), static_cast<int32_t>(i));
      if (u != node.updated.end()) {
        o.access = exe::Access::kUpdate;
        o.made =
            value_id(node.outputs[static_cast<size_t>(node.results + (u - node.updated.begin()))]);
      }
      c.args.push_back(std::move(o));
    }
    for (int32_t r = 0; r < node.results; ++r) {
      if (node.outputs[static_cast<size_t>(r)] == kNone) continue;
      c.args.push_back(operand(node.outputs[static_cast<size_t>(r)],
                               node.out_specs[static_cast<size_t>(r)], exe::Access::kWrite));
    }
    c.index_args = index_arguments(node, callee);
    if (node.kind == Node::Kind::kCall) pass_sequences(node.callees[0], 1);
    return c;
  }

  exe::Loop loop(const Node& node, int32_t n) {
    exe::Loop l;
    l.trips = node.trips;
    l.body = call(node, n, callees_[static_cast<size_t>(n)][0], 0, node.inputs.size(), 0);
    for (int32_t k = 0; k < node.carried; ++k) {
      const auto out = static_cast<int32_t>(node.inputs.size()) + k;
      const Block& block = placement_.block(node.inputs[static_cast<size_t>(k)]);
      for (const auto& [arg, ahead] : {std::pair<int32_t, int64_t>{k, 0}, {out, 1}}) {
        exe::Address& at = l.body.args[static_cast<size_t>(arg)].at;
        at.offset = block.offset;
        at.depth = block.ring;
        at.stride = slot_stride(block);
        at.slot = exe::IndexExpr::iteration() + exe::IndexExpr(ahead);
      }
      l.carried.push_back({k, out});
    }
    for (const int32_t u : node.updated) l.carried.push_back({u, u});
    pass_sequences(node.callees[0], node.trips);
    return l;
  }

  exe::Branch branch(const Node& node, int32_t n) {
    exe::Branch b;
    b.condition = operand(node.inputs[0], node.in_specs[0], exe::Access::kRead);
    const auto then_inputs = static_cast<size_t>(node.then_inputs);
    b.then_call = call(node, n, callees_[static_cast<size_t>(n)][0], 1, then_inputs, 0);
    b.else_call = call(node, n, callees_[static_cast<size_t>(n)][1], 1 + then_inputs,
                       node.inputs.size() - 1 - then_inputs, 1);
    pass_sequences(node.callees[0], 1);
    return b;
  }

  exe::Issue transfer(const Node& node) {
    exe::Issue issue;
    issue.queue = node.queue;
    issue.token = node.token;
    const Effect& e = node.effect;
    using Kind = Effect::Kind;
    if (e.kind == Kind::kStreamRead || e.kind == Kind::kStreamWrite) {
      issue.object = e.id;
      const Sequence stream{Sequence::Of::kStream, e.id};
      issue.entry = reached(stream);
      ++used_[stream];
    } else {
      issue.object = e.id - 1;  // Remote buffers are numbered from 1 in the IR.
      if (const auto entry = entry_of(node)) {
        issue.entry = *entry;
      } else {
        issue.entry_from = operand(node.inputs.back(), node.in_specs.back(), exe::Access::kRead);
      }
    }
    if (e.kind == Kind::kStreamRead || e.kind == Kind::kRemoteLoad) {
      issue.kind = e.kind == Kind::kStreamRead ? exe::TransferKind::kStreamIn
                                               : exe::TransferKind::kRemoteLoad;
      issue.memory = operand(node.outputs[0], node.out_specs[0], exe::Access::kWrite);
    } else {
      issue.kind = e.kind == Kind::kStreamWrite ? exe::TransferKind::kStreamOut
                                                : exe::TransferKind::kRemoteStore;
      issue.memory = operand(node.inputs[0], node.in_specs[0], exe::Access::kRead);
    }
    if (issue.kind == exe::TransferKind::kRemoteLoad ||
        issue.kind == exe::TransferKind::kRemoteStore)
      track_entry(issue);
    return issue;
  }

  // A load of an entry that was last stored here must find what was stored. Another device might store in between.
  void track_entry(exe::Issue& issue) {
    if (exe_.devices.size() > 1) return;
    const bool known = !issue.entry_from;
    if (issue.kind == exe::TransferKind::kRemoteLoad) {
      for (const Stored& s : stored_) {
        if (known && s.buffer == issue.object && s.entry == issue.entry) issue.found = s.value;
      }
      return;
    }
    std::erase_if(stored_, [&](const Stored& s) {
      return s.buffer == issue.object && !(known && differ(s.entry, issue.entry));
    });
    if (known) stored_.push_back({issue.object, issue.entry, issue.memory.value});
  }

  void forget_stored(int32_t buffer) {
    std::erase_if(stored_, [&](const Stored& s) { return s.buffer == buffer; });
  }

  // What entries of remote buffers hold where variables live, as far as that is known.
  void add_stored(std::vector<exe::Final>& finals) const {
    for (size_t v = 0; v < exe_.variables.size(); ++v) {
      for (const Stored& s : stored_) {
        if (s.buffer == exe_.variables[v].buffer && s.entry == exe_.variables[v].entry)
          finals.push_back({static_cast<int32_t>(v), s.value});
      }
    }
  }

  const Body& body_;
  Placement& placement_;
  const std::vector<KernelChoice>& choices_;
  const std::vector<std::vector<int32_t>>& callees_;
  const EmitContext& context_;
  exe::Executable& exe_;
  exe::Function function_;
  std::vector<exe::ValueId> value_ids_;
  std::vector<int64_t> frames_;
  std::vector<int64_t> steps_;  ///< Steps before each node; last, of all.
  std::vector<int32_t> result_param_;
  std::map<Sequence, exe::IndexExpr> base_;
  std::map<Sequence, int64_t> used_;
  std::vector<Stored> stored_;  ///< What entries of remote buffers hold, as far as is known.
};

}  // namespace

exe::Function emit_function(const Body& body, Placement& placement,
                            const std::vector<KernelChoice>& choices,
                            const std::vector<std::vector<int32_t>>& callees,
                            const EmitContext& context, exe::Program* program) {
  return Emitter(body, placement, choices, callees, context).run(program);
}

}  // namespace sluice::compiler
