#include "sluice/exe/fingerprint.h"

#include <fmt/format.h>

#include <iterator>

#include "sluice/base/hash.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

/// Adds items to a digest. Each item ends in a newline, and each string is preceded by its length,
/// so that different items produce different bytes.
class Fingerprint {
 public:
  explicit Fingerprint(const Executable& e) : e_(e) {}

  std::string run() {
    add("replicas {}", e_.replicas);
    tables();
    for (const Function& f : e_.functions) function(f);
    for (const Program& p : e_.programs) program(p);
    return digest_.hex();
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    item_.clear();
    fmt::format_to(std::back_inserter(item_), format, std::forward<Args>(args)...);
    item_ += '\n';
    digest_.add(std::as_bytes(std::span(item_.data(), item_.size())));
  }
  void add_string(std::string_view text) { add("{} {}", text.size(), text); }

  void spec(const TensorSpec& s) {
    add("{} {} of {}", name_of(s.dtype), to_string(s.shape), to_string(s.meta_shape));
  }

  void value(ValueId v) {
    if (v == kNoValue) return add("no value");
    const Value& named = e_.values[v];
    add("version {}", named.version);
    add_string(named.tensor);
  }

  void group(GroupId g) {
    if (g < 0) return add("all replicas");
    const ReplicaGroup& of = e_.groups[g];
    add("group {} {}", of.stride, of.size);
  }

  void tables() {
    for (const StreamPort& s : e_.streams) {
      add("stream {}", s.input);
      add_string(s.name);
      spec(s.spec);
    }
    for (const Feed& f : e_.feeds) {
      add("feed {}", f.input);
      add_string(f.name);
      for (const FeedRing& r : f.rings) add("field {}", r.stream);
    }
    for (const RemoteBufferPlan& b : e_.remote_buffers) {
      add("remote {}", b.entries);
      add_string(b.name);
      spec(b.spec);
    }
    for (const VariablePlan& v : e_.variables) {
      add("variable {} {} {}", v.shard, v.buffer, v.entry);
      add_string(v.path);
      spec(v.spec);
      value(v.value);
      group(v.group);
      add_string(v.initializer);
    }
    for (const ConstantPlan& c : e_.constants) {
      add_string(c.name);
      spec(c.spec);
      value(c.value);
      add("constant {}", c.data.size());
      digest_.add(c.data);
    }
    for (const Channel& c : e_.channels) add("channel {} {}", c.from, c.to);
  }

  void operand(const Operand& o) {
    add("{}", word(o.access));
    value(o.value);
    value(o.made);
    spec(o.spec);
  }

  void call(const Call& c) {
    add("call {}", c.function);
    for (const IndexExpr& x : c.index_args) add("{}", to_string(x));
    for (const Operand& o : c.args) operand(o);
  }

  void kernel(const Kernel& k) {
    add_string(k.op);
    add_string(to_string(k.attrs));
    for (const IndexExpr& x : k.scalars) add("{}", to_string(x));
    for (const Operand& o : k.operands) operand(o);
    for (const Stage& s : k.stages) {
      add_string(s.op);
      add_string(to_string(s.attrs));
      for (const int32_t i : s.inputs) add("{}", i);
      add("to {}", s.output);
      spec(s.spec);
    }
  }

  void loop(const Loop& l) {
    add("loop {}", l.trips);
    if (l.condition >= 0) add("condition {} exit {}", l.condition, l.exit);
    for (const Carry& c : l.carried) {
      add("{}:{}", c.in, c.out);
      if (c.after != kNoValue) value(c.after);
    }
    call(l.body);
  }

  void branch(const Branch& b) {
    add("branch");
    operand(b.condition);
    call(b.then_call);
    call(b.else_call);
  }

  void issue(const Issue& i) {
    add("{} {} {}", word(i.kind), i.object, to_string(i.entry));
    if (i.entry_from) operand(*i.entry_from);
    operand(i.memory);
    value(i.found);
  }

  void message(std::string_view what, int32_t channel, const IndexExpr& number, const Operand& o) {
    add("{} {} {}", what, channel, to_string(number));
    operand(o);
  }

  void collective(const Collective& c) {
    add_string(c.op);
    add_string(to_string(c.attrs));
    group(c.group);
    add("{}", to_string(c.sequence));
    for (const Operand& o : c.operands) operand(o);
  }

  void function(const Function& f) {
    add("function {} {}", f.device, f.index_params);
    for (const Param& p : f.params) {
      add("param {}", word(p.access));
      value(p.value);
      value(p.made);
      spec(p.spec);
    }
    const Overloaded visit{
        [&](const Kernel& k) { kernel(k); },
        [&](const Call& c) { call(c); },
        [&](const Loop& l) { loop(l); },
        [&](const Branch& b) { branch(b); },
        [&](const Issue& i) { issue(i); },
        [&](const Wait&) {},
        [&](const Send& m) { message("send", m.channel, m.message, m.operand); },
        [&](const Receive& m) { message("receive", m.channel, m.message, m.operand); },
        [&](const Collective& c) { collective(c); },
    };
    for (const Step& s : f.steps) std::visit(visit, s.body);
  }

  void program(const Program& p) {
    add("program");
    add_string(p.name);
    for (const Start& x : p.starts) add("entry {} {}", x.device, x.function);
    for (const StreamCount& s : p.streams) add("stream {} {}", s.stream, s.entries);
    for (const CollectiveCount& c : p.collectives)
      add("collectives {} {} {}", c.device, c.group, c.count);
    for (const RemoteTrace& r : p.remote)
      add("remote {} {} {} {}", r.buffer, r.loads, r.stores, r.found);
    for (const Final& f : p.finals) {
      add("final {}", f.variable);
      value(f.value);
    }
  }

  const Executable& e_;
  Digest digest_;
  std::string item_;
};

}  // namespace

std::string fingerprint(const Executable& executable) { return Fingerprint(executable).run(); }

}  // namespace sluice::exe
