#include "value_program.h"

#include <algorithm>
#include <cstring>

#include "sluice/base/error.h"
#include "sluice/exe/text.h"
#include "sluice/interp/run_op.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/initializer.h"
#include "sluice/ir/replica_grouping.h"
#include "sluice/ops/op.h"
#include "value_messages.h"

namespace sluice::property {

using namespace exe;  // NOLINT: everything here is about executables
using exe::Operand;

namespace {

/// One activation of a function.
struct Activation {
  const Function& function;
  int32_t replica = 0;
  std::vector<int64_t> numbers = {};     ///< Index arguments.
  std::map<ValueId, Array> values = {};  ///< Values that it was given or has made.
  int64_t iteration = 0;                 ///< Iteration of the running loop step.
  /// For each queue and token: the value of a load, visible after its wait.
  std::map<std::pair<int32_t, int32_t>, std::pair<ValueId, Array>> in_flight = {};
};

template <typename List>
auto& at(List& list, int64_t i) {
  return list.at(static_cast<size_t>(i));
}
template <typename I, typename T>
const T& at(const Ids<I, T>& list, I i) {
  return list.items().at(static_cast<size_t>(i.value()));
}

HostTensor shaped(const HostTensor& t, const TensorSpec& spec) {
  require(t.dtype() == spec.dtype && t.elements() == spec.elements(), "a value must be {}, got {}",
          to_string(spec), to_string(t.spec()));
  return t.reshaped(spec.shape);
}

}  // namespace

/// One run of a program.
class ValueRun {
 public:
  ValueRun(ValueProgram& state, const Program& program, const StreamEntries& inputs)
      : state_(state), e_(state.executable_), program_(program), inputs_(inputs) {
    for (const ConstantPlan& c : e_.constants) {
      auto array = std::make_shared<HostTensor>(c.spec);
      require(array->bytes().size() == c.data.size(),
              "constant '{}': must have the bytes of its spec", c.name);
      std::copy(c.data.begin(), c.data.end(), array->bytes().begin());
      if (c.value != kNoValue) constants_[c.value] = std::move(array);
    }
  }

  StreamEntries run() {
    std::vector<std::function<void()>> devices;
    for (int32_t r = 0; r < e_.replicas; ++r) {
      for (const Start& start : program_.starts)
        devices.emplace_back([this, &start, r] { run_start(start, r); });
    }
    messages_.run_devices(devices);
    set_variables();
    return collected();
  }

 private:
  void run_start(const Start& start, int32_t replica) {
    Activation a{at(e_.functions, start.function), replica};
    for (const VariableId v : e_.variables.ids())
      a.values[at(e_.variables, v).value] =
          std::make_shared<HostTensor>(state_.variable(v, replica));
    run_steps(a);
    ends_[replica].merge(a.values);
  }

  void set_variables() {
    for (const Final& f : program_.finals) {
      const VariablePlan& v = at(e_.variables, f.variable);
      for (int32_t r = 0; r < e_.replicas; ++r) {
        const auto last = ends_[r].find(f.value);
        require(last != ends_[r].end(), "variable '{}': its final value was not made", v.path);
        state_.stored_variable(f.variable, r) = shaped(*last->second, v.spec);
      }
    }
  }

  StreamEntries collected() {
    StreamEntries out;
    for (const StreamCount& s : program_.streams) {
      const StreamPort& port = at(e_.streams, s.stream);
      if (port.input) continue;
      for (int64_t k = 0; k < s.entries; ++k) {
        HostTensor& all = out[s.stream].emplace_back(of_all(port.spec));
        auto to = all.bytes().begin();
        for (int32_t r = 0; r < e_.replicas; ++r) {
          const auto entry = sent_.find({s.stream, k, r});
          require(entry != sent_.end(), "stream '{}': entry {} is missing", port.name, k);
          const HostTensor own = shaped(*entry->second, port.spec);
          to = std::copy(own.bytes().begin(), own.bytes().end(), to);
        }
      }
    }
    return out;
  }

  TensorSpec of_all(const TensorSpec& spec) const {
    if (e_.replicas == 1) return spec;
    std::vector<int64_t> dims{e_.replicas};
    dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
    return {Shape(std::move(dims)), spec.dtype, {}};
  }

  Array find(const Activation& a, ValueId v) const {
    require(v != kNoValue, "an operand that is read must name a value");
    for (const auto* values : {&a.values, &constants_}) {
      if (const auto found = values->find(v); found != values->end()) return found->second;
    }
    fail(ErrorKind::kUsage, "value %{} '{}' is read but was not made", v, at(e_.values, v).tensor);
  }

  Array read(const Activation& a, const Operand& o) const {
    if (o.value == kNoValue && o.bytes == 0) return std::make_shared<HostTensor>(o.spec);
    Array found = find(a, o.value);
    if (found->shape() == o.spec.shape && found->dtype() == o.spec.dtype) return found;
    return std::make_shared<HostTensor>(shaped(*found, o.spec));
  }

  static void make(Activation& a, const Operand& o, const HostTensor& value) {
    const ValueId made = o.access == Access::kUpdate ? o.made : o.value;
    if (made != kNoValue) a.values[made] = std::make_shared<HostTensor>(shaped(value, o.spec));
  }

  int64_t number(const Activation& a, const IndexExpr& x) const {
    return x.evaluate({a.numbers, a.iteration, a.replica});
  }

  void run_steps(Activation& a) {
    for (const Step& s : a.function.steps) {
      try {
        std::visit([&](const auto& body) { step(a, body); }, s.body);
      } catch (Error& e) {
        throw e.note(fmt::format("running '{}' of '{}'", step_title(s), a.function.name));
      }
    }
    require(a.in_flight.empty(), "function '{}' ends before its transfers", a.function.name);
  }

  void step(Activation& a, const Kernel& k) {
    if (!k.stages.empty()) return run_stages(a, k);
    std::vector<HostTensor> inputs;
    std::vector<const Operand*> outputs;
    for (const Operand& o : k.operands) {
      if (o.access != Access::kWrite) inputs.push_back(*read(a, o));
      if (o.access != Access::kRead) outputs.push_back(&o);
    }
    require(k.scalars.empty() || k.op == "Index", "op '{}' takes no scalars", k.op);
    for (const IndexExpr& x : k.scalars) {
      const auto bits = static_cast<uint32_t>(number(a, x));
      std::memcpy(inputs.emplace_back(outputs.at(0)->spec).bytes().data(), &bits, sizeof bits);
    }
    const std::vector<HostTensor> results = apply(k.op, k.attrs, inputs);
    require(results.size() == outputs.size(), "the op must make {} values, got {}", outputs.size(),
            results.size());
    for (size_t i = 0; i < results.size(); ++i) make(a, *outputs[i], results[i]);
  }

  void run_stages(Activation& a, const Kernel& k) {
    std::vector<HostTensor> results;
    for (const Stage& s : k.stages) {
      std::vector<HostTensor> inputs;
      for (const int32_t i : s.inputs)
        inputs.push_back(i < 0 ? at(results, ~i) : *read(a, at(k.operands, i)));
      results.push_back(shaped(apply(s.op, s.attrs, inputs).at(0), s.spec));
      if (s.output >= 0) make(a, at(k.operands, s.output), results.back());
    }
  }

  static std::vector<HostTensor> apply(const std::string& op, const Attrs& attrs,
                                       const std::vector<HostTensor>& inputs) {
    if (op == "Copy" || op == "Index") return inputs;  // Ops that the compiler adds.
    const OpDef* def = ops::find_op(op);
    require(def != nullptr, "op '{}' does not exist", op);
    if (def != &builtin::init()) return run_op(*def, attrs, inputs, Precision::kFloat);
    const auto o = from_attrs<builtin::InitOptions>(attrs);
    return {Initializer::constant(o.value).evaluate({o.shape, o.dtype, {}})};
  }

  std::vector<Array> arguments(const Activation& a, const Call& c) const {
    std::vector<Array> arguments;
    for (const Operand& o : c.args)
      arguments.push_back(o.access == Access::kWrite ? nullptr : read(a, o));
    return arguments;
  }

  /// Runs the callee. Returns its value for each argument that it writes, and null for each other
  /// argument.
  std::vector<Array> call(const Activation& a, const Call& c, const std::vector<Array>& arguments) {
    Activation callee{at(e_.functions, c.function), a.replica};
    const Ids<ParamId, Param>& params = callee.function.params;
    for (const IndexExpr& x : c.index_args) callee.numbers.push_back(number(a, x));
    for (const ParamId i : params.ids()) {
      if (params[i].access == Access::kWrite) continue;
      require(at(arguments, i) != nullptr, "parameter '{}': must be given a value", params[i].name);
      callee.values[params[i].value] = at(arguments, i);
    }
    run_steps(callee);
    std::vector<Array> results;
    for (const Param& p : params) {
      const ValueId v = p.access == Access::kUpdate ? p.made : p.value;
      const bool has_result = p.access != Access::kRead && v != kNoValue;
      results.push_back(has_result ? find(callee, v) : nullptr);
    }
    return results;
  }

  static void keep_results(Activation& a, const Call& c, const std::vector<Array>& results) {
    for (const ParamId i : c.args.ids()) {
      const bool written = c.args[i].access != Access::kRead && at(results, i) != nullptr;
      if (written) make(a, c.args[i], *at(results, i));
    }
  }

  void step(Activation& a, const Call& c) { keep_results(a, c, call(a, c, arguments(a, c))); }

  void step(Activation& a, const Loop& l) {
    std::vector<Array> given = arguments(a, l.body);
    std::vector<Array> results = given;
    const auto goes_on = [&] { return l.condition < 0 || at(given, l.condition)->as<bool>()[0]; };
    for (a.iteration = 0; a.iteration < l.trips && goes_on(); ++a.iteration) {
      results = call(a, l.body, given);
      const std::vector<Array> found = given;
      for (const Carry& c : l.carried) {
        const bool made = at(l.body.args, c.out).access != Access::kRead;
        at(given, c.in) = at(made ? results : found, c.out);
      }
    }
    a.iteration = 0;
    keep_results(a, l.body, results);
    for (const Carry& c : l.carried) {
      if (c.after != kNoValue) a.values[c.after] = at(given, c.in);
    }
  }

  void step(Activation& a, const Branch& b) {
    step(a, read(a, b.condition)->as<bool>()[0] ? b.then_call : b.else_call);
  }

  void step(Activation& a, const Issue& i) {
    const int64_t entry = i.entry_from
                              ? static_cast<int64_t>(read(a, *i.entry_from)->to_doubles()[0])
                              : number(a, i.entry);
    if (i.kind == TransferKind::kStreamOut) {
      require(sent_.emplace(std::tuple(i.object, entry, a.replica), read(a, i.memory)).second,
              "entry {} is written twice", entry);
    } else if (i.kind == TransferKind::kRemoteStore) {
      HostTensor& there = remote_entry(a, i, entry);
      there = shaped(*read(a, i.memory), there.spec());
    } else {
      const HostTensor from =
          i.kind == TransferKind::kStreamIn ? stream_entry(a, i, entry) : remote_entry(a, i, entry);
      require(i.found == kNoValue || shaped(*find(a, i.found), from.spec()).same_bits(from),
              "the entry must hold value %{}", i.found);
      auto loaded = std::make_shared<HostTensor>(shaped(from, i.memory.spec));
      a.in_flight[{i.queue, i.token}] = {i.memory.value, std::move(loaded)};
    }
    if (i.queue == 0) step(a, Wait{i.queue, i.token});
  }

  void step(Activation& a, const Wait& w) {
    const auto flight = a.in_flight.extract({w.queue, w.token});
    if (!flight.empty()) a.values[flight.mapped().first] = flight.mapped().second;
  }

  HostTensor stream_entry(const Activation& a, const Issue& i, int64_t entry) const {
    const auto found = inputs_.find(i.object);
    const size_t count = found == inputs_.end() ? 0 : found->second.size();
    require(static_cast<size_t>(entry) < count, "stream {} has no entry {}", i.object, entry);
    HostTensor own(at(e_.streams, i.stream()).spec);
    const HostTensor all = shaped(at(found->second, entry), of_all(own.spec()));
    const auto from = all.bytes().begin() + a.replica * own.spec().bytes();
    std::copy(from, from + own.spec().bytes(), own.bytes().begin());
    return own;
  }

  HostTensor& remote_entry(const Activation& a, const Issue& i, int64_t entry) const {
    const RemoteBufferPlan& b = at(e_.remote_buffers, i.buffer());
    require(entry >= 0 && entry < b.entries, "buffer '{}' has no entry {}", b.name, entry);
    return state_.remote(i.object, entry, a.replica);
  }

  // Every replica has its own channels.
  int32_t own(const Activation& a, int32_t channel) const {
    return a.replica * static_cast<int32_t>(e_.channels.size()) + channel;
  }

  void step(Activation& a, const Send& s) {
    messages_.send(own(a, s.channel), number(a, s.message), read(a, s.operand));
  }

  void step(Activation& a, const Receive& r) {
    make(a, r.operand, *messages_.receive(own(a, r.channel), number(a, r.message)));
  }

  // The channel from replica `from` to replica `to` for a device and grouping. These follow the
  // plan's channels.
  int32_t between(const Activation& a, const Collective& c, int32_t from, int32_t to) const {
    const auto groups = static_cast<int32_t>(e_.groups.size());
    const int32_t pairs = (a.function.device * groups + c.group) * e_.replicas + from;
    return e_.replicas * static_cast<int32_t>(e_.channels.size()) + pairs * e_.replicas + to;
  }

  // Each member sends its operand to all members and computes its result from all operands.
  void step(Activation& a, const Collective& c) {
    const ReplicaGroup& g = at(e_.groups, c.group);
    const ReplicaGrouping grouping = ReplicaGrouping::make(e_.replicas, g.stride, g.size);
    const std::vector<int> members = grouping.members(grouping.group_of(a.replica));
    const int64_t sequence = number(a, c.sequence);
    const Array mine = read(a, c.operands.front());
    for (const int to : members) messages_.send(between(a, c, a.replica, to), sequence, mine);
    const OpDef* def = ops::find_op(c.op);
    require(def != nullptr, "op '{}' does not exist", c.op);
    std::vector<HostTensor> arrays;
    for (const int from : members) {
      const Array there = messages_.receive(between(a, c, from, a.replica), sequence);
      arrays.push_back(to_working(*there, Precision::kFloat));
    }
    const TensorSpec& made = c.operands.back().spec;
    arrays.emplace_back(TensorSpec{made.shape, working_dtype(made.dtype, Precision::kFloat), {}});
    std::vector<HostTensor*> operands;
    for (HostTensor& t : arrays) operands.push_back(&t);
    const std::vector<TensorSpec> ins(members.size(), c.operands.front().spec);
    const std::vector<TensorSpec> outs{made};
    run_kernel(OpView(*def, c.attrs, ins, outs), operands, Precision::kFloat,
               grouping.member_of(a.replica));
    make(a, c.operands.back(), arrays.back().cast(made.dtype));
  }

  ValueProgram& state_;
  const Executable& e_;
  const Program& program_;
  const StreamEntries& inputs_;
  std::map<ValueId, Array> constants_;
  /// Indexed by stream, entry and replica.
  std::map<std::tuple<int32_t, int64_t, int32_t>, Array> sent_;
  /// For each replica: values that its entry functions have made.
  std::map<int32_t, std::map<ValueId, Array>> ends_;
  Messages messages_;
};

ValueProgram::ValueProgram(Executable executable, const std::vector<HostTensor>& variables)
    : executable_(std::move(executable)) {
  require(variables.size() == executable_.variables.size(), "{} variables given, {} planned",
          variables.size(), executable_.variables.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    for (int32_t r = 0; r < executable_.replicas; ++r)
      stored_variable(static_cast<int32_t>(v), r) = variables[v];
  }
}

StreamEntries ValueProgram::run(const std::string& program, const StreamEntries& inputs) {
  return ValueRun(*this, executable_.program(program), inputs).run();
}

HostTensor& ValueProgram::stored_variable(int32_t variable, int32_t replica) {
  const VariablePlan& plan = at(std::as_const(executable_.variables), VariableId(variable));
  return plan.buffer < 0 ? variables_[{variable, replica}]
                         : remote_[{plan.buffer, plan.entry, replica}];
}

HostTensor& ValueProgram::remote(int32_t buffer, int64_t entry, int32_t replica) {
  const TensorSpec& spec = at(std::as_const(executable_.remote_buffers), BufferId(buffer)).spec;
  return remote_.try_emplace({buffer, entry, replica}, spec).first->second;
}

}  // namespace sluice::property
