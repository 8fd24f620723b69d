#include "sluice/check/simulation/simulation.h"

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/exe/text.h"

namespace sluice::check {

Simulation::Simulation(const exe::Executable& executable, const exe::Program& program,
                       const FactsOfFunctions& facts, const Options& options, int64_t replica,
                       Findings& findings)
    : e_(executable),
      program_(program),
      facts_(facts),
      options_(options),
      replica_(replica),
      findings_(findings),
      bytes_(executable.arenas.size()),
      clocks_(executable),
      tiers_(executable.arenas.size()),
      channels_(executable.channels.size()),
      streams_(executable.streams.size()),
      remote_(executable),
      last_step_(options.max_steps) {}

std::string Simulation::name(exe::ValueId v) const {
  if (v == exe::kNoValue) return "no value";
  const exe::Value& value = e_.values[v];
  return fmt::format("%{} '{}' v{}", v, value.tensor, value.version);
}

std::string Simulation::where(const DeviceRun& d) const {
  std::string text = fmt::format("program '{}', device {}{}{}", program_.name, d.device,
                                 d.stack.empty() ? "" : ", ", path_of(d));
  if (!d.stack.empty() && d.stack.back().step < d.stack.back().function->steps.size()) {
    text +=
        fmt::format(" ({})", exe::step_title(d.stack.back().function->steps[d.stack.back().step]));
  }
  return text;
}

void Simulation::run() {
  start();
  bool progress = true;
  while (progress && !stop_) {
    progress = false;
    for (DeviceRun& d : devices_) progress |= !d.stack.empty() && advance(d, 0);
    if (progress && !stop_) leave_early_together();
  }
  if (stop_) return;
  const bool ended = std::all_of(devices_.begin(), devices_.end(),
                                 [](const DeviceRun& d) { return d.stack.empty(); });
  if (ended) {
    finish();
  } else {
    report_deadlocks();
  }
}

void Simulation::start() {
  find_feeds();
  for (const exe::VariablePlan& v : e_.variables) {
    Range r{v.arena, v.offset, v.offset + v.bytes};
    if (v.buffer >= 0) {
      const exe::RemoteBufferPlan& b = e_.remote_buffers[v.buffer];
      const int64_t begin = b.offset + v.entry * b.entry_stride;
      r = {b.arena, begin, begin + v.bytes};
    }
    variables_.push_back(make(v.value, v.bytes, v.spec.dtype, v.layout));
    bytes_.write(r, variables_.back());
  }
  for (const exe::ConstantPlan& c : e_.constants) {
    const auto size = static_cast<int64_t>(c.data.size());
    const Instance i = make(c.value, size, c.spec.dtype, row_);
    bytes_.write({c.arena, c.offset, c.offset + size}, i);
    if (c.value != exe::kNoValue) constants_[c.value] = i;
  }
  for (const exe::Start& start : program_.starts) {
    const exe::Function& f = e_.functions[start.function];
    DeviceRun& d =
        devices_.emplace_back(DeviceRun{start.device, {}, Window(e_.arenas.size()), {}, {}});
    Activation& a = d.stack.emplace_back();
    a.function = &f;
    a.path = RemoteLedger::entry(start.device);
    a.frame = {start.frame.arena(), start.frame.offset, start.frame.offset + f.frame_bytes};
    bytes_.forget(a.frame);
    for (const exe::VariableId v : e_.variables.ids()) {
      if (e_.variables[v].value != exe::kNoValue) a.values[e_.variables[v].value] = variables_[v];
    }
  }
}

void Simulation::finish() {
  const auto fault = [&](const char* rule, const std::string& text) {
    findings_.add(rule, "program '{}': {}", program_.name, text);
  };
  for (const exe::ChannelId c : channels_.ids()) {
    if (!channels_[c].slots.empty()) {
      fault("channel", fmt::format("channel '{}': {} messages are never received",
                                   e_.channels[c].name, channels_[c].slots.size()));
    }
  }
  check_exits();
  finish_remote();
  Ids<exe::VariableId, exe::ValueId> finals(e_.variables.size(), exe::kNoValue);
  Ids<exe::VariableId, bool> listed(e_.variables.size(), false);
  for (const exe::Final& f : program_.finals) {
    finals[f.variable] = f.value;
    listed[f.variable] = true;
  }
  for (const exe::VariableId v : e_.variables.ids()) {
    const exe::VariablePlan& plan = e_.variables[v];
    Range r{plan.arena, plan.offset, plan.offset + plan.bytes};
    if (plan.buffer >= 0) {
      const exe::RemoteBufferPlan& b = e_.remote_buffers[plan.buffer];
      const int64_t begin = b.offset + plan.entry * b.entry_stride;
      r = {b.arena, begin, begin + plan.bytes};
    }
    if (listed[v] && finals[v] == exe::kNoValue && plan.buffer >= 0) continue;
    const Instance* end = &variables_[v];
    if (listed[v] && finals[v] != plan.value) {
      const auto found = ends_.find(finals[v]);
      end = found == ends_.end() ? nullptr : &found->second;
    }
    if (end == nullptr) {
      fault("final", fmt::format("variable '{}' must hold {} at the end, but no step makes it",
                                 plan.path, name(finals[v])));
    } else if (!bytes_.holds(r, *end) || *end->layout != plan.layout) {
      fault("final", fmt::format("variable '{}' must hold {} at the end, but has {}", plan.path,
                                 name(listed[v] ? finals[v] : plan.value), bytes_.describe(r, e_)));
    }
  }
  for (const exe::ConstantPlan& c : e_.constants) {
    const auto size = static_cast<int64_t>(c.data.size());
    const Range r{c.arena, c.offset, c.offset + size};
    if (c.value != exe::kNoValue && !bytes_.holds(r, constants_[c.value])) {
      fault("final",
            fmt::format("constant '{}' is overwritten by {}", c.name, bytes_.describe(r, e_)));
    }
  }
}

void Simulation::finish_remote() {
  const auto fault = [&](exe::BufferId buffer, const std::string& text) {
    findings_.add("remote", "program '{}': '{}' {}", program_.name, e_.remote_buffers[buffer].name,
                  text);
  };
  std::map<exe::BufferId, exe::RemoteTrace> traces;
  for (const exe::RemoteTrace& t : remote_.traces()) traces[t.buffer] = t;
  for (const exe::RemoteTrace& announced : program_.remote) {
    const auto found = traces.extract(announced.buffer);
    const exe::RemoteTrace there =
        found.empty() ? exe::RemoteTrace{announced.buffer} : found.mapped();
    const bool counted = there.loads == announced.loads && there.stores == announced.stores;
    if (counted && there != announced) {
      fault(announced.buffer,
            fmt::format(
                "holds or loads entries of other stores than announced: digest must be {}, got {}",
                announced.found, there.found));
    }
  }
  for (const auto& [buffer, t] : traces) {
    fault(buffer,
          fmt::format("is used but not announced; add 'remote {} loads {} stores {} found {}'",
                      buffer, t.loads, t.stores, t.found));
  }
}

bool Simulation::advance(DeviceRun& d, size_t depth) {
  bool progress = false;
  while (d.stack.size() > depth && !stop_) {
    if (d.stack.back().step == d.stack.back().function->steps.size()) {
      leave(d);
      progress = true;
      // A round ends with an iteration, so that the states of rounds can repeat.
      const bool joint = !d.stack.empty() && d.stack.back().loop && d.stack.back().loop->joint;
      if (depth == 0 && joint) break;
      continue;
    }
    const Outcome outcome = step(d);
    if (outcome == Outcome::kBlocked) break;
    if (outcome == Outcome::kDone) ++d.stack.back().step;
    progress = true;
    if (++steps_ > last_step_) {
      if (last_step_ == options_.max_steps)
        bad(d, "limit", "more than {} steps", options_.max_steps);
      stop_ = true;
    }
  }
  return progress;
}

Simulation::Outcome Simulation::step(DeviceRun& d) {
  Activation& a = d.stack.back();
  const exe::Step& s = a.function->steps[a.step];
  const auto* const exiting = std::get_if<exe::Loop>(&s.body);
  if (s.sync && (!a.loop || (exiting != nullptr && exiting->condition >= 0))) d.window.barrier();
  struct Visitor {
    Simulation& m;
    DeviceRun& d;
    Outcome operator()(const exe::Kernel& k) const { return m.kernel(d, k); }
    Outcome operator()(const exe::Call& c) const {
      // `leave` moves the caller past this step when the callee ends.
      return m.enter(d, c, Role::kCall, nullptr) ? Outcome::kEntered : Outcome::kDone;
    }
    Outcome operator()(const exe::Loop& l) const { return m.loop(d, l); }
    Outcome operator()(const exe::Branch& b) const { return m.branch(d, b); }
    Outcome operator()(const exe::Issue& i) const { return m.issue(d, i); }
    Outcome operator()(const exe::Wait& w) const { return m.wait(d, w); }
    Outcome operator()(const exe::Send& x) const { return m.send(d, x); }
    Outcome operator()(const exe::Receive& r) const { return m.receive(d, r); }
    Outcome operator()(const exe::Collective& c) const { return m.collective(d, c); }
  };
  return std::visit(Visitor{*this, d}, s.body);
}

bool Simulation::evaluate(DeviceRun& d, const Activation& a, const exe::IndexExpr& x,
                          int64_t& out) {
  if (x.is_constant()) {
    out = x.constant();
    return true;
  }
  try {
    out = x.evaluate({a.numbers, a.loop ? a.loop->iteration : 0, replica_});
  } catch (const Error& e) {
    bad(d, "index", "{}", e.what());
    stop_ = true;
    return false;
  }
  return true;
}

bool Simulation::resolve(DeviceRun& d, const exe::Address& at, int64_t bytes, Range& out) {
  const Activation& a = d.stack.back();
  int64_t begin = at.offset;
  if (at.depth > 0) {
    int64_t slot = 0;
    if (!evaluate(d, at.slot, slot)) return false;
    if (slot < 0) {
      bad(d, "bounds", "ring slot {} must be at least 0, got {}", to_string(at.slot), slot);
      stop_ = true;
      return false;
    }
    begin += slot % at.depth * at.stride;
  }
  Range whole;
  switch (at.base) {
    case exe::Address::Base::kArena:
      whole = {at.arena(), 0, e_.arenas[at.arena()].bytes};
      break;
    case exe::Address::Base::kFrame:
      whole = a.frame;
      break;
    case exe::Address::Base::kParam:
      whole = a.params[at.param()];
      break;
  }
  if (begin + bytes > whole.end - whole.begin) {
    bad(d, "bounds", "bytes [{}, {}) must be inside the {} bytes of {}", begin, begin + bytes,
        whole.end - whole.begin,
        at.base == exe::Address::Base::kArena
            ? fmt::format("arena '{}'", e_.arenas[at.arena()].name)
        : at.base == exe::Address::Base::kFrame ? std::string("the frame")
                                                : fmt::format("parameter {}", at.index));
    stop_ = true;  // Later checks would use bytes that do not exist.
    return false;
  }
  out = {whole.arena, whole.begin + begin, whole.begin + begin + bytes};
  return true;
}

const Instance* Simulation::lookup(const Activation& a, exe::ValueId v) const {
  if (const auto found = a.values.find(v); found != a.values.end()) return &found->second;
  const auto found = constants_.find(v);
  return found == constants_.end() ? nullptr : &found->second;
}

void Simulation::read(DeviceRun& d, const exe::Operand& o, const Range& r, const Instance* expected,
                      const std::string& what) {
  if (o.value == exe::kNoValue && o.bytes == 0) return;
  if (expected == nullptr) {
    bad(d, "value", "{}: no earlier step has made {}", what, name(o.value));
  } else if (!bytes_.holds(r, *expected)) {
    bad(d, "value", "{}: must find {} ({} bytes), got {}", what, name(o.value), expected->bytes,
        bytes_.describe(r, e_));
  } else if (expected->dtype != o.spec.dtype) {
    bad(d, "value", "{}: dtype of {} must be {}, got {}", what, name(o.value),
        name_of(expected->dtype), name_of(o.spec.dtype));
  } else if (*expected->layout != o.layout) {
    bad(d, "layout", "{}: layout of {} must be '{}', got '{}'", what, name(o.value),
        *expected->layout, o.layout);
  }
}

void Simulation::check_arguments(DeviceRun& d, const exe::Call& call,
                                 const Ids<exe::ParamId, Range>& args, const Range& frame) {
  std::vector<exe::ParamId> order(args.ids().begin(), args.ids().end());
  std::sort(order.begin(), order.end(), [&](exe::ParamId a, exe::ParamId b) {
    return std::tie(args[a].arena, args[a].begin, a) < std::tie(args[b].arena, args[b].begin, b);
  });
  exe::ParamId any;      // Earlier argument that ends last.
  exe::ParamId written;  // Earlier written argument that ends last.
  const auto clashes = [&](exe::ParamId before, exe::ParamId i) {
    return before.valid() && args[before].overlaps(args[i]);
  };
  for (const exe::ParamId i : order) {
    if (args[i].begin == args[i].end) continue;
    const bool writes = call.args[i].access != exe::Access::kRead;
    const exe::ParamId other = clashes(written, i)         ? written
                               : writes && clashes(any, i) ? any
                                                           : exe::ParamId();
    if (other.valid())
      bad(d, "overlap", "arguments {} and {} share bytes, and one is written", other, i);
    const auto later = [&](exe::ParamId before) {
      return !before.valid() || args[before].arena != args[i].arena ||
             args[before].end < args[i].end;
    };
    if (later(any)) any = i;
    if (writes && later(written)) written = i;
    if (frame.begin != frame.end && frame.overlaps(args[i])) {
      bad(d, "overlap", "argument {} overlaps the frame of the called function", i);
    }
  }
}

bool Simulation::enter(DeviceRun& d, const exe::Call& call, Role role, const LoopRun* loop) {
  const Activation& caller = d.stack.back();
  const exe::Function& f = e_.functions[call.function];
  if (static_cast<int64_t>(d.stack.size()) >= options_.max_depth) {
    bad(d, "limit", "more than {} nested calls", options_.max_depth);
    stop_ = true;
    return false;
  }
  Activation callee;
  callee.function = &f;
  callee.role = role;
  callee.call = &call;
  const bool named = loop != nullptr && loop->long_depth == 0;
  callee.path = RemoteLedger::callee(caller.path, caller.calls, named ? loop->iteration : 0);
  if (!resolve(d, call.frame, f.frame_bytes, callee.frame)) return false;
  callee.params.resize(call.args.size());
  for (const exe::ParamId i : call.args.ids()) {
    if (!resolve(d, call.args[i].at, call.args[i].bytes, callee.params[i])) return false;
  }
  callee.numbers.resize(call.index_args.size());
  for (size_t i = 0; i < call.index_args.size(); ++i) {
    if (!evaluate(d, call.index_args[i], callee.numbers[i])) return false;
  }
  check_arguments(d, call, callee.params, callee.frame);
  for (const exe::ParamId i : call.args.ids()) {
    const exe::Operand& o = call.args[i];
    const Range& r = callee.params[i];
    if (o.access == exe::Access::kWrite) {
      bytes_.forget(r);
      continue;
    }
    const Instance* expected = loop != nullptr ? &loop->found[i] : lookup(caller, o.value);
    if (expected != nullptr && expected->id < 0) expected = nullptr;
    read(d, o, r, expected, fmt::format("argument {}", i));
    if (expected != nullptr && f.params[i].value != exe::kNoValue)
      callee.values[f.params[i].value] = *expected;
  }
  bytes_.forget(callee.frame);
  d.stack.push_back(std::move(callee));
  return true;
}

Simulation::Results Simulation::results(DeviceRun& d, Activation& a) {
  Results made;
  const exe::Function& f = *a.function;
  for (const exe::ParamId i : f.params.ids()) {
    const exe::Param& p = f.params[i];
    if (p.access == exe::Access::kRead) continue;
    const exe::Operand& o = a.call->args[i];
    const exe::ValueId inside = p.access == exe::Access::kWrite ? p.value : p.made;
    const exe::ValueId outside = p.access == exe::Access::kWrite ? o.value : o.made;
    const Range& r = a.params[i];
    if (inside == exe::kNoValue) {
      // Only a clobbered argument may end without a value.
      if (outside != exe::kNoValue)
        bad(d, "value", "parameter '{}' must end with a value, because the caller names it {}",
            p.name, name(outside));
      bytes_.forget(r);
      continue;
    }
    const Instance* i_made = lookup(a, inside);
    if (i_made == nullptr || !bytes_.holds(r, *i_made)) {
      bad(d, "value", "parameter '{}' must hold {} at the end, but has {}", p.name, name(inside),
          bytes_.describe(r, e_));
    } else if (*i_made->layout != p.layout) {
      bad(d, "layout", "parameter '{}': layout must be '{}', got '{}'", p.name, p.layout,
          *i_made->layout);
    } else {
      made.emplace_back(i, *i_made);
    }
  }
  return made;
}

void Simulation::leave(DeviceRun& d) {
  Activation& a = d.stack.back();
  for (const auto& [token, queue] : a.tokens) {
    bad(d, "wait", "token {} on queue {} is not waited for before the function ends", token, queue);
  }
  std::erase_if(d.flights, [&](const Flight& f) { return f.owner == &a; });
  bytes_.forget(a.frame);
  if (a.role == Role::kEntry) {
    for (auto& [value, instance] : a.values) ends_.insert_or_assign(value, instance);
    d.stack.pop_back();
    return;
  }
  const Results made = results(d, a);
  const exe::Call& call = *a.call;
  const Role role = a.role;
  d.stack.pop_back();
  Activation& caller = d.stack.back();
  if (role == Role::kIteration) {
    if (caller.loop->long_depth > 0) remote_.end_iteration(d.device);
    end_iteration(caller, call, made);
    return;
  }
  Bindings named;
  for (const auto& [arg, instance] : made) {
    const exe::Operand& o = call.args[arg];
    const exe::ValueId v = o.access == exe::Access::kWrite ? o.value : o.made;
    if (v != exe::kNoValue) named.emplace_back(v, instance);
  }
  if (role == Role::kArm) {
    d.arm = std::move(named);
    return;
  }
  for (const auto& [v, instance] : named) caller.values[v] = instance;
  ++caller.step;
  ++caller.calls;
}

void Simulation::end_iteration(Activation& a, const exe::Call& call, const Results& made) {
  const auto& loop = std::get<exe::Loop>(a.function->steps[a.step].body);
  LoopRun& run = *a.loop;
  run.made.assign(call.args.size(), {});
  for (const auto& [arg, instance] : made) run.made[arg] = instance;
  const Ids<exe::ParamId, Instance> found = run.found;
  for (const exe::Carry& c : loop.carried) {
    const bool rotates = call.args[c.out].access == exe::Access::kRead;
    run.found[c.in] = rotates ? found[c.out] : run.made[c.out];
  }
  ++run.iteration;
}

Simulation::Outcome Simulation::loop(DeviceRun& d, const exe::Loop& l) {
  Activation& a = d.stack.back();
  if (!a.loop) {
    a.loop = std::make_unique<LoopRun>();
    a.loop->first_id = next_id_;
    a.loop->made.resize(l.body.args.size());
    for (const exe::Operand& o : l.body.args) {
      const Instance* i = o.access == exe::Access::kWrite ? nullptr : lookup(a, o.value);
      a.loop->found.push_back(i == nullptr ? Instance{} : *i);
    }
    a.loop->period = loop_period(l, facts_);
    // Transfers change state that `state_of` omits.
    a.loop->joint = a.loop->period > 0 && facts_[l.body.function].transfers;
    if (is_long(l, facts_)) a.loop->long_depth = remote_.begin_long_loop(d.device);
    if (l.condition >= 0) begin_exits(d, l, *a.loop);
  }
  LoopRun& run = *a.loop;
  if (run.exit) read_condition(d, l, run);
  if (!run.joint) leave_early(d, l, run);
  if (run.iteration < l.trips) {
    enter(d, l.body, Role::kIteration, &run);
    return Outcome::kEntered;
  }
  if (run.exit) join_exits(d, l, run);
  if (run.long_depth > 0) remote_.end_long_loop(d.device);
  for (const exe::ParamId i : l.body.args.ids()) {
    if (run.exit) break;
    const exe::Operand& o = l.body.args[i];
    const exe::ValueId v = o.access == exe::Access::kWrite ? o.value : o.made;
    // A loop without iterations leaves its updated arguments unchanged.
    const Instance& last = l.trips == 0 ? run.found[i] : run.made[i];
    if (o.access != exe::Access::kRead && v != exe::kNoValue && last.id >= 0) a.values[v] = last;
  }
  for (const exe::Carry& c : l.carried) {
    const Instance& last = run.found[c.in];
    if (c.after != exe::kNoValue && last.id >= 0) a.values[c.after] = last;
  }
  a.loop.reset();
  ++a.calls;
  return Outcome::kDone;
}

}  // namespace sluice::check
