#include "sluice/exe/text.h"

#include <fmt/format.h>

#include <cctype>
#include <iterator>

#include "sluice/exe/fingerprint.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

bool is_bare(std::string_view s) {
  if (s.empty()) return false;
  for (const char c : s) {
    if (!std::isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("_.:-/").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

std::string quote(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string bare_or_quote(std::string_view s) { return is_bare(s) ? std::string(s) : quote(s); }

std::string spec_text(const TensorSpec& spec) {
  const auto dims = [](const Shape& shape) {
    std::string text = "(";
    for (const int64_t d : shape.dims())
      text += fmt::format("{}{}", text.size() == 1 ? "" : ",", d);
    return text + ")";
  };
  std::string text = std::string(name_of(spec.dtype)) + dims(spec.shape);
  if (!spec.meta_shape.empty()) text += "of" + dims(spec.meta_shape);
  return text;
}

std::string address_text(const Address& a) {
  std::string text;
  switch (a.base) {
    case Address::Base::kArena:
      text = fmt::format("arena{}+{}", a.index, a.offset);
      break;
    case Address::Base::kFrame:
      text = fmt::format("frame+{}", a.offset);
      break;
    case Address::Base::kParam:
      text = fmt::format("param{}+{}", a.index, a.offset);
      break;
  }
  if (a.depth != 0 || a.stride != 0 || !(a.slot == IndexExpr(0))) {
    text += fmt::format("@ring({},{},{})", a.depth, a.stride, to_string(a.slot));
  }
  return text;
}

std::string value_text(ValueId v) { return v == kNoValue ? "%-" : fmt::format("%{}", v); }

class Writer {
 public:
  explicit Writer(const Executable& e) : e_(e) {}

  std::string run() {
    line("sluice executable 1");
    line("computes {}", fingerprint(e_));
    if (e_.replicas != 1) line("replicas {}", e_.replicas);
    tables();
    for (const FunctionId i : e_.functions.ids()) function(i);
    for (const Program& p : e_.programs) {
      line("program {}", quote(p.name));
      for (const Start& x : p.starts) {
        line("  entry device {} function {} frame {}", x.device, x.function, address_text(x.frame));
      }
      for (const StreamCount& s : p.streams) line("  stream {} entries {}", s.stream, s.entries);
      for (const CollectiveCount& c : p.collectives)
        line("  collectives {} device {} group {}", c.count, c.device, c.group);
      for (const RemoteTrace& r : p.remote)
        line("  remote {} loads {} stores {} found {}", r.buffer, r.loads, r.stores, r.found);
      for (const Final& f : p.finals) line("  final {} value {}", f.variable, value_text(f.value));
    }
    line("end");
    return std::move(out_);
  }

  std::string title(const Step& step) {
    step_head(step);
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    add(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void tables() {
    for (const DeviceId i : e_.devices.ids()) {
      const Device& d = e_.devices[i];
      add("device {} kind {} isa {} memory {} workers {}{} queues", i, bare_or_quote(d.kind),
          bare_or_quote(d.isa), d.memory_budget, d.workers, d.queued ? " queued" : "");
      for (const Queue& q : d.queues) add(" {}", bare_or_quote(q.name));
      out_ += '\n';
    }
    for (size_t i = 0; i < e_.tiers.size(); ++i) {
      const Tier& t = e_.tiers[i];
      line("tier {} {} space {} budget {}", i, quote(t.name), word(t.space), t.budget);
    }
    for (const ArenaId i : e_.arenas.ids()) {
      const Arena& a = e_.arenas[i];
      line("arena {} {} kind {} space {} device {} bytes {} stride {}", i, quote(a.name),
           word(a.kind), word(a.space), a.device, a.bytes, a.stride);
    }
    for (const StreamId i : e_.streams.ids()) {
      const StreamPort& s = e_.streams[i];
      line("stream {} {} {} {}", i, quote(s.name), s.input ? "in" : "out", spec_text(s.spec));
    }
    for (const FeedId i : e_.feeds.ids()) {
      const Feed& f = e_.feeds[i];
      add("feed {} {} {} depth {}", i, quote(f.name), f.input ? "in" : "out", f.depth);
      for (const FeedRing& r : f.rings) {
        add(" field {} slots {} arena {} offset {} slot {}", r.stream, r.slots, r.arena, r.offset,
            r.slot_bytes);
      }
      out_ += '\n';
    }
    for (const BufferId i : e_.remote_buffers.ids()) {
      const RemoteBufferPlan& b = e_.remote_buffers[i];
      line("remote {} {} {} entries {} arena {} offset {} stride {}", i, quote(b.name),
           spec_text(b.spec), b.entries, b.arena, b.offset, b.entry_stride);
    }
    for (const VariableId i : e_.variables.ids()) {
      const VariablePlan& v = e_.variables[i];
      add("variable {} {} {} arena {} offset {} bytes {} {} value {} shard {} group {} buffer {} "
          "entry {} init {}",
          i, quote(v.path), spec_text(v.spec), v.arena, v.offset, v.bytes, bare_or_quote(v.layout),
          value_text(v.value), v.shard, v.group, v.buffer, v.entry, quote(v.initializer));
      const auto [role, owner] = e_.origins.of_variable(i);
      if (role != OpRole::kForward) add(" role {} of {}", word(role), owner);
      out_ += '\n';
    }
    for (const ConstantId i : e_.constants.ids()) {
      const ConstantPlan& c = e_.constants[i];
      add("constant {} {} {} arena {} offset {} value {} data ", i, quote(c.name),
          spec_text(c.spec), c.arena, c.offset, value_text(c.value));
      if (c.data.empty()) out_ += '-';
      for (const std::byte b : c.data) {
        constexpr std::string_view digits = "0123456789abcdef";
        out_ += at(digits, b >> 4);
        out_ += at(digits, b & std::byte{15});
      }
      out_ += '\n';
    }
    for (const ChannelId i : e_.channels.ids()) {
      const Channel& c = e_.channels[i];
      line("channel {} {} from {} to {} capacity {} arena {} offset {} slot {}", i, quote(c.name),
           c.from, c.to, c.capacity, c.arena, c.offset, c.slot_bytes);
    }
    for (const GroupId i : e_.groups.ids()) {
      const ReplicaGroup& g = e_.groups[i];
      line("group {} stride {} size {}", i, g.stride, g.size);
    }
    for (size_t i = 0; i < e_.origins.rows.size(); ++i) provenance(i);
    for (const auto& [block, rows] : e_.origins.rows_of_blocks) {
      add("rows_of_block {}", quote(block));
      for (const std::string& row : rows) add(" {}", quote(row));
      out_ += '\n';
    }
    for (const ValueId i : e_.values.ids()) {
      const Value& v = e_.values[i];
      add("value {} {} {}", i, quote(v.tensor), v.version);
      if (v.message >= 0) add(" message {}", v.message);
      from(e_.origins.of_value(i));
      out_ += '\n';
    }
  }

  void provenance(size_t i) {
    const Provenance& p = e_.origins.rows[i];
    add("provenance {} {}", i, word(p.role));
    const auto field = [&](const char* label, const std::string& text) {
      if (!text.empty()) add(" {} {}", label, quote(text));
    };
    field("op", p.op);
    field("block", p.block);
    field("module", p.module_path);
    field("line", p.line);
    field("variable", p.variable);
    const auto instance = [&](const char* label, const Instance& at) {
      if (at != Instance{}) add(" {} {} {}", label, at.micro_batch, at.row);
    };
    instance("at", p.at);
    instance("per_iteration", p.per_iteration);
    out_ += '\n';
  }

  void from(int32_t provenance) {
    if (provenance != -1) add(" provenance {}", provenance);
  }

  void value_comment(ValueId v) {
    if (!e_.values.contains(v)) return;
    const Value& value = e_.values[v];
    add("{} v{}", is_bare(value.tensor) ? value.tensor : quote(value.tensor), value.version);
  }

  void operand(std::string_view indent, const Operand& o) {
    add("{}{} {}", indent, word(o.access), value_text(o.value));
    if (o.made != kNoValue) add(">{}", value_text(o.made));
    add(" at {} bytes {} {} {}", address_text(o.at), o.bytes, spec_text(o.spec),
        bare_or_quote(o.layout));
    if (o.task_stride != 0) add(" task {}", o.task_stride);
    if (o.task_pitch != 0) add(" pitch {}", o.task_pitch);
    if (o.value != kNoValue) {
      out_ += "  # ";
      value_comment(o.value);
      if (o.made != kNoValue) {
        out_ += " > ";
        value_comment(o.made);
      }
    }
    out_ += '\n';
  }

  void call_head(const Call& c) { add("{} frame {}", c.function, address_text(c.frame)); }

  void call_lines(const Call& c) {
    if (!c.index_args.empty()) {
      add("      index");
      for (const IndexExpr& x : c.index_args) add(" {}", to_string(x));
      out_ += '\n';
    }
    for (const Operand& o : c.args) operand("      ", o);
  }

  void step_head(const Step& step) {
    struct Printer {
      Writer& w;
      void operator()(const Kernel& k) const {
        w.add("kernel {} {} tasks {} workspace {}", bare_or_quote(k.key), bare_or_quote(k.op),
              k.tasks, k.workspace_bytes);
        if (k.flops != 0) w.add(" flops {}", k.flops);
      }
      void operator()(const Call& c) const {
        w.add("call ");
        w.call_head(c);
      }
      void operator()(const Loop& l) const {
        w.add("loop ");
        w.call_head(l.body);
        w.add(" trips {}", l.trips);
        if (l.condition >= 0) w.add(" condition {} exit {}", l.condition, l.exit);
      }
      void operator()(const Branch& b) const {
        w.add("branch then ");
        w.call_head(b.then_call);
        w.add(" else ");
        w.call_head(b.else_call);
      }
      void operator()(const Issue& i) const {
        w.add("issue {} {} entry {} queue {} token {}", word(i.kind), i.object, to_string(i.entry),
              i.queue, i.token);
        if (i.found != kNoValue) w.add(" found {}", value_text(i.found));
      }
      void operator()(const Wait& x) const { w.add("wait queue {} token {}", x.queue, x.token); }
      void operator()(const Send& s) const {
        w.add("send {} message {}", s.channel, to_string(s.message));
      }
      void operator()(const Receive& r) const {
        w.add("receive {} message {}", r.channel, to_string(r.message));
      }
      void operator()(const Collective& c) const {
        w.add("collective {} group {} sequence {}", bare_or_quote(c.op), c.group,
              to_string(c.sequence));
        if (c.workspace_bytes != 0) w.add(" workspace {}", c.workspace_bytes);
      }
    };
    if (step.sync) out_ += "sync ";
    std::visit(Printer{*this}, step.body);
    if (step.origin != -1) add(" origin {}", step.origin);
    if (!step.where.empty()) add(" where {}", quote(step.where));
    from(step.provenance);
  }

  /// Writes the options of a kernel or a collective, and its operands that may coincide.
  template <typename Body>
  void op_lines(const Body& body) {
    if (!body.attrs.items.empty()) line("      attrs {}", to_string(body.attrs));
    if (body.may_coincide.empty()) return;
    add("      coincide");
    for (const auto& [in, out] : body.may_coincide) add(" {}:{}", in, out);
    out_ += '\n';
  }

  void step_lines(const Step& step) {
    if (const auto* k = std::get_if<Kernel>(&step.body)) {
      op_lines(*k);
      if (!k->scalars.empty()) {
        add("      scalars");
        for (const IndexExpr& x : k->scalars) add(" {}", to_string(x));
        out_ += '\n';
      }
      for (const Operand& o : k->operands) operand("      ", o);
      for (const Stage& stage : k->stages) {
        add("      stage {} from", bare_or_quote(stage.op));
        for (const int32_t i : stage.inputs) add(" {}", i);
        line(" to {} {}", stage.output, spec_text(stage.spec));
        if (!stage.attrs.items.empty()) line("      stage_attrs {}", to_string(stage.attrs));
      }
    } else if (const auto* c = std::get_if<Call>(&step.body)) {
      call_lines(*c);
    } else if (const auto* l = std::get_if<Loop>(&step.body)) {
      if (!l->carried.empty()) {
        add("      carry");
        for (const Carry& x : l->carried) {
          add(" {}:{}", x.in, x.out);
          if (x.after != kNoValue) add(" {}", value_text(x.after));
        }
        out_ += '\n';
      }
      call_lines(l->body);
    } else if (const auto* b = std::get_if<Branch>(&step.body)) {
      operand("      condition ", b->condition);
      line("      then");
      call_lines(b->then_call);
      line("      else");
      call_lines(b->else_call);
    } else if (const auto* i = std::get_if<Issue>(&step.body)) {
      operand("      ", i->memory);
      if (i->entry_from) operand("      entry_from ", *i->entry_from);
    } else if (const auto* s = std::get_if<Send>(&step.body)) {
      operand("      ", s->operand);
    } else if (const auto* r = std::get_if<Receive>(&step.body)) {
      operand("      ", r->operand);
    } else if (const auto* x = std::get_if<Collective>(&step.body)) {
      op_lines(*x);
      for (const Operand& o : x->operands) operand("      ", o);
    }
  }

  void function(FunctionId index) {
    const Function& f = e_.functions[index];
    line("function {} {} memo {} device {} index_params {} frame {} bound {}", index, quote(f.name),
         quote(f.memo), f.device, f.index_params, f.frame_bytes, f.frame_bound);
    for (const ParamId i : f.params.ids()) {
      const Param& p = f.params[i];
      add("  param {} {} {} {}", i, quote(p.name), word(p.access), value_text(p.value));
      if (p.made != kNoValue) add(">{}", value_text(p.made));
      line(" bytes {} {} {}", p.bytes, spec_text(p.spec), bare_or_quote(p.layout));
    }
    for (size_t i = 0; i < f.buffers.size(); ++i) {
      const FrameBuffer& b = f.buffers[i];
      add("  buffer {} offset {} bytes {} steps {} {}", quote(b.name), b.offset, b.bytes, b.begin,
          b.end);
      const ValueId held = e_.origins.in_buffer(index, i);
      if (held != kNoValue) add(" value {}", value_text(held));
      out_ += '\n';
    }
    for (size_t s = 0; s < f.steps.size(); ++s) {
      add("  {} ", s);
      step_head(f.steps[s]);
      out_ += '\n';
      step_lines(f.steps[s]);
    }
  }

  const Executable& e_;
  std::string out_;
};

}  // namespace

std::string to_text(const Executable& executable) { return Writer(executable).run(); }

std::string step_title(const Step& step) {
  const Executable none;
  Step titled = step;
  titled.provenance = -1;
  return Writer(none).title(titled);
}

}  // namespace sluice::exe
