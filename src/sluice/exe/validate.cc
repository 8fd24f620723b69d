#include "sluice/exe/validate.h"

#include <set>

#include "sluice/base/error.h"
#include "sluice/exe/ring_slots.h"
#include "sluice/exe/visit_step.h"

namespace sluice::exe {
namespace {

using Section = PlanPosition::Section;

class Validator {
 public:
  explicit Validator(const Executable& e) : e_(e) {}

  std::vector<Problem> run() {
    devices_and_arenas();
    streams_and_channels();
    feeds();
    variables();
    origins();
    for (const FunctionId f : e_.functions.ids()) function(f);
    for (const ValueId v : e_.values.ids()) {
      at(Section::kValue, v);
      const int32_t message = e_.values[v].message;
      if (message < -1) bad("message must be at least 0, got {}", message);
    }
    // Check call chains last: they dereference indices validated above.
    if (problems_.empty()) call_order();
    programs();
    return std::move(problems_);
  }

 private:
  template <typename... Args>
  void bad(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back({position_, fmt::format(format, std::forward<Args>(args)...)});
  }
  void at(Section section, int64_t index) { position_ = {section, index, -1}; }

  bool index(int64_t i, size_t count, std::string_view what) {
    if (i >= 0 && i < static_cast<int64_t>(count)) return true;
    bad("{} {} does not exist (there are {})", what, i, count);
    return false;
  }
  bool index_or_none(int64_t i, size_t count, std::string_view what) {
    return i == -1 || index(i, count, what);
  }
  void size(int64_t n, std::string_view what) {
    if (n < 0 || n > kMaxSize) bad("{} must be in [0, {}], got {}", what, kMaxSize, n);
  }
  void budget(int64_t n) {
    if (n < -1) bad("budget must be at least 0 bytes, or -1 for none, got {}", n);
  }
  void product(int64_t a, int64_t b, std::string_view what) {
    int64_t p = 0;
    if (__builtin_mul_overflow(a, b, &p) || p > kMaxSize)
      bad("{} must be at most {} in all, got {} x {}", what, kMaxSize, a, b);
  }
  /// Returns the bytes of the row-major tensor, or -1 if its shape is invalid.
  int64_t spec(const TensorSpec& s) {
    int64_t bytes = size_of(s.dtype);
    for (const Shape* shape : {&s.meta_shape, &s.shape}) {
      bytes = size_of(s.dtype);
      for (const int64_t d : shape->dims()) {
        if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes) || bytes > kMaxSize) {
          bad("a tensor must have dimensions >= 0 and at most {} bytes, got shape {}", kMaxSize,
              to_string(*shape));
          return -1;
        }
      }
    }
    return bytes;
  }
  void value(ValueId v) { index_or_none(v, e_.values.size(), "value"); }
  void provenance(int32_t p) { index_or_none(p, e_.origins.rows.size(), "provenance"); }

  void devices_and_arenas() {
    at(Section::kDevice, 0);
    if (e_.replicas < 1) bad("replicas must be at least 1, got {}", e_.replicas);
    for (const DeviceId i : e_.devices.ids()) {
      at(Section::kDevice, i);
      if (e_.devices[i].queues.empty()) bad("a device needs a compute queue");
      if (e_.devices[i].workers < 1)
        bad("workers must be at least 1, got {}", e_.devices[i].workers);
      budget(e_.devices[i].memory_budget);
    }
    for (const Tier& tier : e_.tiers) {
      at(Section::kTier, &tier - e_.tiers.data());
      budget(tier.budget);
    }
    for (const ArenaId i : e_.arenas.ids()) {
      at(Section::kArena, i);
      const Arena& a = e_.arenas[i];
      index_or_none(a.device, e_.devices.size(), "device");
      size(a.bytes, "arena bytes");
      size(a.stride, "arena stride");
    }
  }

  void streams_and_channels() {
    for (const StreamId i : e_.streams.ids()) {
      at(Section::kStream, i);
      spec(e_.streams[i].spec);
    }
    for (const BufferId i : e_.remote_buffers.ids()) {
      at(Section::kRemoteBuffer, i);
      const RemoteBufferPlan& b = e_.remote_buffers[i];
      spec(b.spec);
      size(b.entries, "entries");
      size(b.offset, "offset");
      size(b.entry_stride, "entry stride");
      product(b.entries, b.entry_stride, "entries");
      index(b.arena, e_.arenas.size(), "arena");
    }
    for (const GroupId i : e_.groups.ids()) {
      at(Section::kGroup, i);
      const ReplicaGroup& g = e_.groups[i];
      if (g.stride < 1 || g.size < 1 || e_.replicas % (int64_t{g.stride} * g.size) != 0) {
        bad("stride and size must be at least 1 and stride x size must divide {} replicas, got {} "
            "x {}",
            e_.replicas, g.stride, g.size);
      }
    }
    for (const ChannelId i : e_.channels.ids()) {
      at(Section::kChannel, i);
      const Channel& c = e_.channels[i];
      index(c.from, e_.devices.size(), "device");
      index(c.to, e_.devices.size(), "device");
      index(c.arena, e_.arenas.size(), "arena");
      size(c.offset, "offset");
      size(c.slot_bytes, "slot bytes");
      if (c.capacity < 1) bad("capacity must be at least 1, got {}", c.capacity);
      product(c.capacity, c.slot_bytes, "slots");
    }
  }

  void feeds() {
    for (const FeedId i : e_.feeds.ids()) {
      at(Section::kFeed, i);
      if (e_.feeds[i].depth < 1) bad("depth must be at least 1, got {}", e_.feeds[i].depth);
      if (e_.feeds[i].rings.empty()) bad("a feed must have at least 1 field, got 0");
      for (const FeedRing& r : e_.feeds[i].rings) {
        index(r.stream, e_.streams.size(), "stream");
        index(r.arena, e_.arenas.size(), "arena");
        size(r.offset, "offset");
        size(r.slot_bytes, "slot bytes");
        if (r.slots < 1) bad("slots must be at least 1, got {}", r.slots);
        product(r.slots, r.slot_bytes, "slots");
      }
    }
  }

  void variables() {
    for (const VariableId i : e_.variables.ids()) {
      at(Section::kVariable, i);
      const VariablePlan& v = e_.variables[i];
      spec(v.spec);
      size(v.offset, "offset");
      size(v.bytes, "bytes");
      value(v.value);
      index_or_none(v.group, e_.groups.size(), "group");
      if (v.shard < 0) bad("shard must be at least 0, got {}", v.shard);
      if (v.buffer == -1) {
        index(v.arena, e_.arenas.size(), "arena");
      } else if (index(v.buffer, e_.remote_buffers.size(), "remote buffer") &&
                 (v.entry < 0 || v.entry >= e_.remote_buffers[v.buffer].entries)) {
        bad("entry must be in [0, {}), got {}", e_.remote_buffers[v.buffer].entries, v.entry);
      }
    }
    for (const ConstantId i : e_.constants.ids()) {
      at(Section::kConstant, i);
      const ConstantPlan& c = e_.constants[i];
      const int64_t bytes = spec(c.spec);
      if (bytes >= 0 && bytes != static_cast<int64_t>(c.data.size())) {
        bad("data must have {} bytes for this spec, got {}", bytes, c.data.size());
      }
      index(c.arena, e_.arenas.size(), "arena");
      size(c.offset, "offset");
      value(c.value);
    }
  }

  void origins() {
    const Origins& o = e_.origins;
    for (const ValueId i : o.values.ids()) {
      at(Section::kValue, i);
      provenance(o.values[i]);
    }
    for (const VariableId i : o.variables.ids()) {
      at(Section::kVariable, i);
      index_or_none(o.variables[i].owner, e_.variables.size(), "variable");
    }
    for (const FunctionId f : o.buffers.ids()) {
      at(Section::kFunction, f);
      for (const ValueId v : o.buffers[f]) value(v);
    }
  }

  void expression(const IndexExpr& x) {
    for (const IndexExpr::Node& n : x.nodes()) {
      if (n.kind == IndexExpr::Opcode::kIteration && !in_loop_)
        bad("'it' must be used in loops only");
      if (n.kind == IndexExpr::Opcode::kParam) {
        index(n.value, static_cast<size_t>(function_->index_params), "index parameter");
      }
    }
  }

  void address(const Address& a) {
    size(a.offset, "offset");
    size(a.depth, "ring depth");
    size(a.stride, "ring stride");
    product(a.depth, a.stride, "ring");
    expression(a.slot);
    switch (a.base) {
      case Address::Base::kArena:
        index(a.index, e_.arenas.size(), "arena");
        break;
      case Address::Base::kParam:
        index(a.index, function_->params.size(), "parameter");
        break;
      case Address::Base::kFrame:
        if (a.index != 0) bad("the index of a frame must be 0, got {}", a.index);
    }
  }

  void operand(const Operand& o) {
    address(o.at);
    size(o.bytes, "bytes");
    size(o.task_stride, "task stride");
    size(o.task_pitch, "task pitch");
    spec(o.spec);
    value(o.value);
    value(o.made);
  }

  void call(const Call& c) {
    if (!index(c.function, e_.functions.size(), "function")) return;
    const Function& f = e_.functions[c.function];
    if (c.args.size() != f.params.size()) {
      bad("'{}' must get {} arguments, got {}", f.name, f.params.size(), c.args.size());
    }
    if (static_cast<int64_t>(c.index_args.size()) != f.index_params) {
      bad("'{}' must get {} index arguments, got {}", f.name, f.index_params, c.index_args.size());
    }
    if (f.device != function_->device)
      bad("'{}' must be a function of device {}, got device {}", f.name, function_->device,
          f.device);
    for (const Operand& o : c.args) operand(o);
    for (const IndexExpr& x : c.index_args) expression(x);
    address(c.frame);
  }

  void queue(int32_t q) {
    if (e_.devices.contains(function_->device)) {
      index(q, e_.devices[function_->device].queues.size(), "queue");
    }
  }

  void coincidences(const std::vector<std::pair<int32_t, int32_t>>& pairs, size_t operands) {
    for (const auto& [in, out] : pairs) {
      index(in, operands, "operand");
      index(out, operands, "operand");
    }
  }

  void kernel(const Kernel& k) {
    for (const Operand& o : k.operands) operand(o);
    for (const IndexExpr& x : k.scalars) expression(x);
    coincidences(k.may_coincide, k.operands.size());
    for (size_t i = 0; i < k.stages.size(); ++i) stage(k, i);
    if (k.tasks < 1 || k.tasks > kMaxSize)
      bad("tasks must be in [1, {}], got {}", kMaxSize, k.tasks);
    size(k.workspace_bytes, "workspace bytes");
    size(k.flops, "flops");
  }

  void stage(const Kernel& k, size_t i) {
    const Stage& stage = k.stages[i];
    for (const int32_t from : stage.inputs) {
      if (from < 0) {
        index(~from, i, "earlier stage");
      } else {
        index(from, k.operands.size(), "operand");
      }
    }
    if (stage.output == -1) return;
    if (index(stage.output, k.operands.size(), "operand") &&
        sluice::at(k.operands, stage.output).access == Access::kRead) {
      bad("stage {} must write an output, got operand {}, which is an input", i, stage.output);
    }
  }

  void loop(const Loop& l) {
    in_loop_ = true;
    call(l.body);
    in_loop_ = false;
    size(l.trips, "trips");
    if (l.condition != -1) index(l.condition, l.body.args.size(), "argument");
    if (l.condition == -1 ? l.exit != -1 : l.exit < 0)
      bad("the number of an exit must be 0 or more with a condition and -1 without, got {}",
          l.exit);
    for (const Carry& c : l.carried) {
      index(c.in, l.body.args.size(), "argument");
      index(c.out, l.body.args.size(), "argument");
      value(c.after);
    }
  }

  void issue(const Issue& i) {
    index(i.object, i.is_stream() ? e_.streams.size() : e_.remote_buffers.size(),
          i.is_stream() ? "stream" : "remote buffer");
    expression(i.entry);
    if (i.entry_from) operand(*i.entry_from);
    operand(i.memory);
    value(i.found);
    queue(i.queue);
    if (i.queue != 0 && !tokens_.insert(i.token).second) bad("token {} is issued twice", i.token);
  }

  void step(const Step& s) {
    provenance(s.provenance);
    const auto* fused = std::get_if<Kernel>(&s.body);
    if (fused != nullptr && s.provenance >= 0 && !fused->stages.empty())
      provenance(s.provenance + static_cast<int32_t>(fused->stages.size()) - 1);
    std::visit(Overloaded{
                   [&](const Kernel& k) { kernel(k); },
                   [&](const Call& c) { call(c); },
                   [&](const Loop& l) { loop(l); },
                   [&](const Branch& b) {
                     operand(b.condition);
                     call(b.then_call);
                     call(b.else_call);
                   },
                   [&](const Issue& i) { issue(i); },
                   [&](const Wait& w) { queue(w.queue); },
                   [&](const Send& m) {
                     index(m.channel, e_.channels.size(), "channel");
                     expression(m.message);
                     operand(m.operand);
                   },
                   [&](const Receive& m) {
                     index(m.channel, e_.channels.size(), "channel");
                     expression(m.message);
                     operand(m.operand);
                   },
                   [&](const Collective& c) {
                     index(c.group, e_.groups.size(), "group");
                     expression(c.sequence);
                     size(c.workspace_bytes, "workspace bytes");
                     for (const Operand& o : c.operands) operand(o);
                     coincidences(c.may_coincide, c.operands.size());
                   },
               },
               s.body);
  }

  void function(FunctionId f) {
    at(Section::kFunction, f);
    function_ = &e_.functions[f];
    tokens_.clear();
    index(function_->device, e_.devices.size(), "device");
    size(function_->frame_bytes, "frame bytes");
    size(function_->frame_bound, "frame bound");
    if (function_->index_params < 0 || function_->index_params > kMaxIndexParams) {
      bad("index_params must be in [0, {}], got {}", kMaxIndexParams, function_->index_params);
    }
    for (const Param& p : function_->params) {
      size(p.bytes, "parameter bytes");
      spec(p.spec);
      value(p.value);
      value(p.made);
    }
    for (const FrameBuffer& b : function_->buffers) {
      size(b.offset, "offset");
      size(b.bytes, "bytes");
    }
    for (size_t s = 0; s < function_->steps.size(); ++s) {
      position_.step = static_cast<int64_t>(s);
      step(function_->steps[s]);
    }
  }

  /// Visits the calls depth first, without recursion. A function that is reached again while it is
  /// open calls itself.
  void call_order() {
    enum : uint8_t { kNew, kOpen, kDone };
    Ids<FunctionId, uint8_t> state(e_.functions.size(), kNew);
    struct Visit {
      FunctionId function;
      size_t step;
      int part;  // 0, or 1 for the second function of a branch.
    };
    for (const FunctionId root : e_.functions.ids()) {
      if (state[root] != kNew) continue;
      std::vector<Visit> stack{{root, 0, 0}};
      state[root] = kOpen;
      while (!stack.empty()) {
        Visit& v = stack.back();
        const auto& steps = e_.functions[v.function].steps;
        if (v.step == steps.size()) {
          state[v.function] = kDone;
          stack.pop_back();
          continue;
        }
        const FunctionId callee = callee_of(steps[v.step], v.part);
        if (!callee.valid()) {
          ++v.step;
          v.part = 0;
          continue;
        }
        ++v.part;
        if (state[callee] == kOpen) {
          position_ = {Section::kFunction, v.function, static_cast<int64_t>(v.step)};
          bad("function {} '{}' calls itself", callee, e_.functions[callee].name);
          return;
        }
        if (state[callee] == kNew) {
          state[callee] = kOpen;
          stack.push_back({callee, 0, 0});
        }
      }
    }
  }

  /// Returns the function of the call number `part` of a step; invalid if it has fewer calls.
  static FunctionId callee_of(const Step& s, int part) {
    FunctionId callee;
    for_each_call(s, [&](const Call& c) {
      if (part-- == 0) callee = c.function;
    });
    return callee;
  }

  void programs() {
    for (const Program& program : e_.programs) {
      at(Section::kProgram, &program - e_.programs.data());
      std::set<DeviceId> devices;
      for (const Start& start : program.starts) {
        index(start.device, e_.devices.size(), "device");
        if (!devices.insert(start.device).second) bad("device {} has two entries", start.device);
        if (index(start.function, e_.functions.size(), "function")) {
          const Function& f = e_.functions[start.function];
          if (!f.params.empty() || f.index_params != 0)
            bad("the entry '{}' must not have parameters", f.name);
          if (f.device != start.device)
            bad("the entry '{}' must be for device {}, got device {}", f.name, start.device,
                f.device);
        }
        if (start.frame.base != Address::Base::kArena || start.frame.depth != 0) {
          bad("an entry's frame must have a constant address in an arena");
        } else {
          const Function none;
          function_ = &none;
          address(start.frame);
        }
      }
      for (const StreamCount& s : program.streams) {
        index(s.stream, e_.streams.size(), "stream");
        size(s.entries, "stream entries");
      }
      for (const CollectiveCount& c : program.collectives) {
        index(c.device, e_.devices.size(), "device");
        index(c.group, e_.groups.size(), "group");
        size(c.count, "collectives");
      }
      for (const RemoteTrace& r : program.remote)
        index(r.buffer, e_.remote_buffers.size(), "remote buffer");
      for (const Final& f : program.finals) {
        index(f.variable, e_.variables.size(), "variable");
        value(f.value);
      }
    }
  }

  const Executable& e_;
  PlanPosition position_;
  const Function* function_ = nullptr;
  bool in_loop_ = false;
  std::set<int32_t> tokens_;
  std::vector<Problem> problems_;
};

}  // namespace

std::string_view word(PlanPosition::Section section) {
  constexpr std::string_view words[] = {
      "device",     "tier",  "arena",    "stream",   "remote buffer", "group",    "channel",
      "provenance", "value", "variable", "constant", "feed",          "function", "program"};
  return at(words, section);
}

std::vector<Problem> validate(const Executable& executable) {
  std::vector<Problem> problems = Validator(executable).run();
  return problems.empty() ? negative_slots(executable) : problems;
}

}  // namespace sluice::exe
