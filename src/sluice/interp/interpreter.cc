#include "sluice/interp/interpreter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "sluice/base/flush_to_zero.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/collectives.h"

namespace sluice {
namespace {

void copy_bytes(const HostTensor& from, HostTensor& to) {
  SLUICE_CHECK(from.bytes().size() == to.bytes().size());
  std::copy(from.bytes().begin(), from.bytes().end(), to.bytes().begin());
}

/// Copies `count` elements between arrays of one dtype.
void copy_elements(const HostTensor& from, int64_t from_begin, HostTensor& to, int64_t to_begin,
                   int64_t count) {
  const int64_t width = size_of(from.dtype());
  const auto first = from.bytes().begin() + from_begin * width;
  std::copy(first, first + count * width, to.bytes().begin() + to_begin * width);
}

/// Fills memory that an op leaves undefined. A correct program's results never depend on the value.
void poison(HostTensor& t) {
  visit_storage(t.dtype(), [&]<typename T>(T) {
    const auto elements = t.as<T>();
    if constexpr (std::is_floating_point_v<T>) {
      std::fill(elements.begin(), elements.end(), std::numeric_limits<T>::quiet_NaN());
    } else {
      std::fill(elements.begin(), elements.end(), std::numeric_limits<T>::max());
    }
  });
}

const Effect& effect_of(const Op& op) {
  SLUICE_CHECK(op.effects.size() == 1);
  return op.effects[0];
}

}  // namespace

const std::vector<HostTensor>& Collected::entries(const D2hStream& stream) const {
  static const std::vector<HostTensor> none;
  const auto found = entries_.find(stream.id);
  return found == entries_.end() ? none : found->second;
}

const HostTensor& Collected::operator[](const D2hStream& stream) const {
  const auto& all = entries(stream);
  require(!all.empty(), "stream '{}': the run sent nothing to it", stream.name);
  return all.back();
}

Interpreter::Interpreter(Ir ir, Precision precision)
    : ir_(std::move(ir)), precision_(precision), replicas_(ir_.fix_replication("an interpreter")) {}

// --- values ---------------------------------------------------------------------------------

Interpreter::Buffer Interpreter::working(const TensorSpec& spec, const HostTensor& value,
                                         std::string_view what) const {
  const DType dtype = working_dtype(spec.dtype, precision_);
  require(value.shape() == spec.shape && (value.dtype() == spec.dtype || value.dtype() == dtype),
          "{}: the array must be {}, got {}", what, to_string(spec), to_string(value.spec()));
  return std::make_shared<HostTensor>(value.cast(dtype));
}

HostTensor Interpreter::shown(const TensorSpec& spec, const HostTensor& value) const {
  const HostTensor shaped = value.reshaped(spec.shape);
  return precision_ == Precision::kFloat ? shaped.cast(spec.dtype) : shaped;
}

Interpreter::Buffer& Interpreter::slot(Frame& frame, TensorId t) const {
  return frame.storages[frame.graph.info(t).storage];
}

Interpreter::Buffer Interpreter::copy(Frame& frame, TensorId t) const {
  return std::make_shared<HostTensor>(slot(frame, t)->reshaped(frame.graph.spec(t).shape));
}

TensorSpec Interpreter::of_all(const TensorSpec& spec) const {
  if (replicas_ == 1) return spec;
  std::vector<int64_t> dims{replicas_};
  dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
  return {Shape(std::move(dims)), spec.dtype, {}};
}

// Returns the part of the host's array that a replica stores, padded with zeros at the end.
Interpreter::Buffer Interpreter::variable_part(const TensorInfo& info, const HostTensor& whole,
                                               int replica) const {
  const HostPart part = host_part(info.spec, *info.variable, replica);
  HostTensor own(TensorSpec{info.spec.shape, whole.dtype(), {}});
  copy_elements(whole, part.begin, own, 0, part.count);
  return std::make_shared<HostTensor>(std::move(own));
}

Interpreter::Buffer& Interpreter::variable(const TensorInfo& info, int replica) {
  const VariableLocation& location = info.variable->location;
  Buffer& own = location.remote() ? remote_entry(location.buffer, location.entry, replica)
                                  : variables_[info.variable][replica];
  if (own == nullptr) {
    const TensorSpec whole = host_spec(info.spec, *info.variable);
    own = variable_part(info, to_working(info.variable->initializer.evaluate(whole), precision_),
                        replica);
  }
  return own;
}

Interpreter::Buffer& Interpreter::remote_entry(int32_t id, int64_t entry, int replica) {
  const RemoteBufferInfo& buffer = ir_.remote_buffer_info(id);
  require(entry >= 0 && entry < buffer.entries,
          "remote buffer {}: entry {} is outside its {} entries", id, entry, buffer.entries);
  return remote_[{id, entry, replica}];
}

Interpreter::Buffer& Interpreter::remote_entry(const RemoteBuffer& buffer, int64_t entry,
                                               int replica) {
  require(buffer.ir == ir_.id(), "remote buffer {} belongs to another Ir", buffer.id);
  return remote_entry(buffer.id, entry, replica);
}

void Interpreter::place_remote_variables() {
  for (const auto& [name, id] : ir_.entries()) {
    for (const Tensor& t : ir_.graph(id).variables()) {
      const TensorInfo& info = ir_.graph(id).info(t);
      if (!info.variable->location.remote()) continue;
      for (int r = 0; r < replicas_; ++r) variable(info, r);
    }
  }
}

void Interpreter::write(const Tensor& t, const HostTensor& value) {
  const TensorInfo& info = t.graph().info(t);
  require(info.kind == TensorKind::kVariable, "write: '{}' is not a variable", info.name);
  const Buffer whole =
      working(host_spec(info.spec, *info.variable), value, "variable '" + info.name + "'");
  for (int r = 0; r < replicas_; ++r) variable(info, r) = variable_part(info, *whole, r);
}

HostTensor Interpreter::read(const Tensor& t) {
  const TensorInfo& info = t.graph().info(t);
  require(info.kind == TensorKind::kVariable, "read: '{}' is not a variable", info.name);
  const TensorSpec spec = host_spec(info.spec, *info.variable);
  HostTensor whole(TensorSpec{spec.shape, working_dtype(spec.dtype, precision_), {}});
  for (int r = replicas_; r-- > 0;) {
    const HostPart part = host_part(info.spec, *info.variable, r);
    copy_elements(*variable(info, r), 0, whole, part.begin, part.count);
  }
  return shown(spec, whole);
}

void Interpreter::write_remote(const RemoteBuffer& buffer, int64_t entry, const HostTensor& value) {
  const Buffer all =
      working(of_all(buffer.spec), value, fmt::format("remote buffer {}", buffer.id));
  for (int r = 0; r < replicas_; ++r) {
    Buffer& own = remote_entry(buffer, entry, r);
    own = std::make_shared<HostTensor>(TensorSpec{buffer.spec.shape, all->dtype(), {}});
    copy_elements(*all, r * buffer.spec.elements(), *own, 0, buffer.spec.elements());
  }
}

HostTensor Interpreter::read_remote(const RemoteBuffer& buffer, int64_t entry) {
  const TensorSpec spec = of_all(buffer.spec);
  HostTensor all(TensorSpec{spec.shape, working_dtype(spec.dtype, precision_), {}});
  for (int r = 0; r < replicas_; ++r) {
    const Buffer& own = remote_entry(buffer, entry, r);
    const int64_t n = buffer.spec.elements();
    if (own != nullptr) copy_elements(*own, 0, all, r * n, n);
  }
  return shown(spec, all);
}

// --- graphs ---------------------------------------------------------------------------------

Interpreter::Frame Interpreter::open(const Graph& graph, int replica) {
  Frame frame{graph, replica, Ids<StorageId, Buffer>(graph.storages().size())};
  for (const TensorId t : graph.tensors().ids()) {
    const TensorInfo& info = graph.info(t);
    if (info.kind == TensorKind::kVariable) slot(frame, t) = variable(info, replica);
    if (info.kind == TensorKind::kConstant) {
      slot(frame, t) = std::make_shared<HostTensor>(to_working(*info.constant, precision_));
    }
  }
  return frame;
}

// An array with one axis more than one entry has several entries.
Interpreter::StreamState Interpreter::stream_state(const StreamInput& input) const {
  const Shape& shape = input.array.spec.shape;
  const bool several = shape.rank() > of_all(ir_.stream(input.stream.id).spec).shape.rank();
  return {input.array, several ? shape[0] : 1, {}};
}

Collected Interpreter::run(const std::vector<StreamInput>& inputs, const std::string& program) {
  const auto found = ir_.entries().find(program);
  require(found != ir_.entries().end(), "run: there is no entry graph '{}'", program);
  check_calls(ir_);
  streams_.clear();
  sent_.clear();
  collected_ = {};
  for (const StreamInput& input : inputs) {
    const H2dStream& stream = input.stream;
    require(stream.ir == ir_.id(), "stream '{}' belongs to another Ir", stream.name);
    require(streams_.emplace(stream.id, stream_state(input)).second, "stream '{}' is given twice",
            stream.name);
  }
  place_remote_variables();
  Frames frames;
  for (int r = 0; r < replicas_; ++r) frames.push_back(open(ir_.graph(found->second), r));
  run_ops(frames);
  for (auto& [id, state] : streams_) {
    for (int r = 0; r < replicas_; ++r) {
      const int64_t next = state.next[r];
      require(next == state.entries, "run: stream '{}' must have {} entries, got {}",
              ir_.stream(id).name, next, state.entries);
    }
  }
  return std::move(collected_);
}

std::vector<HostTensor> Interpreter::evaluate(const Graph& graph,
                                              const std::vector<HostTensor>& inputs) {
  require(replicas_ == 1, "evaluate: the program must have 1 replica, got {}", replicas_);
  const auto& ids = graph.input_ids();
  require(inputs.size() == ids.size(), "evaluate: graph {} must get {} arrays, got {}",
          graph.name(), ids.size(), inputs.size());
  Buffers buffers;
  for (size_t i = 0; i < ids.size(); ++i) {
    buffers.push_back(
        working(graph.spec(ids[i]), inputs[i], "input '" + graph.info(ids[i]).name + "'"));
  }
  const Buffers outputs = run_callee(graph, {{graph, 0, {}}}, {buffers})[0];
  std::vector<HostTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(shown(graph.spec(graph.output_ids()[i]), *outputs[i]));
  }
  return results;
}

std::vector<Interpreter::Buffers> Interpreter::run_callee(const Graph& graph, const Frames& callers,
                                                          const std::vector<Buffers>& inputs) {
  Frames frames;
  for (size_t f = 0; f < callers.size(); ++f) {
    frames.push_back(open(graph, callers[f].replica));
    for (size_t i = 0; i < inputs[f].size(); ++i)
      slot(frames[f], graph.input_ids()[i]) = inputs[f][i];
  }
  run_ops(frames);
  std::vector<Buffers> outputs(frames.size());
  for (size_t f = 0; f < frames.size(); ++f) {
    for (const TensorId t : graph.output_ids()) outputs[f].push_back(copy(frames[f], t));
  }
  return outputs;
}

void Interpreter::run_ops(Frames& frames) {
  for (const Op& op : frames[0].graph.ops()) {
    try {
      run_op_in(frames, op);
    } catch (Error& e) {
      throw e.note(fmt::format("running {} of graph {}", op.label(), frames[0].graph.name()));
    }
    if (!observer_) continue;
    for (Frame& frame : frames) {
      std::vector<HostTensor> outputs;
      for (const TensorId t : op.outputs)
        outputs.push_back(shown(frame.graph.spec(t), *slot(frame, t)));
      observer_(frame.graph, op, outputs);
    }
  }
}

void Interpreter::run_op_in(Frames& frames, const Op& op) {
  if (op.def == &builtin::call()) return run_call(frames, op);
  if (op.def == &builtin::loop()) return run_loop(frames, op);
  if (op.def->has(Trait::kCollective)) return run_collective(frames, op);
  for (Frame& frame : frames) {
    if (op.def == &builtin::init()) {
      run_init(frame, op);
    } else if (op.def == &builtin::host_load() || op.def == &builtin::host_store()) {
      run_stream(frame, op);
    } else if (op.def == &builtin::remote_load() || op.def == &builtin::remote_store()) {
      run_remote(frame, op);
    } else if (op.def == &builtin::branch()) {
      run_branch(frame, op);
    } else {
      run_reference(frame, op);
    }
  }
}

void Interpreter::run_init(Frame& frame, const Op& op) {
  const auto o = from_attrs<builtin::InitOptions>(op.attrs);
  HostTensor value(TensorSpec{o.shape, working_dtype(o.dtype, precision_), {}});
  if (o.undefined) {
    poison(value);
  } else {
    const HostTensor element =
        to_working(HostTensor::of<double>({}, f64, {o.value}).cast(o.dtype), precision_);
    const size_t step = element.bytes().size();
    for (size_t at = 0; at < value.bytes().size(); at += step) {
      std::memcpy(value.bytes().data() + at, element.bytes().data(), step);
    }
  }
  slot(frame, op.outputs[0]) = std::make_shared<HostTensor>(std::move(value));
}

void Interpreter::run_stream(Frame& frame, const Op& op) {
  const Effect& effect = effect_of(op);
  const TensorId t = op.inputs[0].tensor;
  const TensorSpec& spec = frame.graph.spec(t);
  const std::string& name = ir_.stream(effect.id).name;
  const int replica = frame.replica;
  const int64_t begin = frame.replica * spec.elements();
  if (effect.kind == Effect::Action::kStreamWrite) {
    size_t& sent = sent_[effect.id][replica];
    std::vector<HostTensor>& entries = collected_.entries_[effect.id];
    const HostTensor value = shown(spec, *slot(frame, t));
    const TensorSpec whole = of_all(spec);
    if (sent == entries.size()) entries.emplace_back(TensorSpec{whole.shape, value.dtype(), {}});
    copy_elements(value, 0, entries[sent++], begin, spec.elements());
    return;
  }
  const auto bound = streams_.find(effect.id);
  require(bound != streams_.end(), "stream '{}': nothing is bound to it", name);
  StreamState& state = bound->second;
  int64_t& next = state.next[replica];
  require(next < state.entries, "stream '{}': only {} entries are bound to it", name,
          state.entries);
  TensorSpec each = state.array.spec;
  if (each.shape.rank() > of_all(spec).shape.rank())
    each.shape = Shape(std::vector<int64_t>(each.shape.begin() + 1, each.shape.end()));
  HostTensor entry(each);
  const std::byte* from = state.array.data + next++ * each.bytes();
  std::copy(from, from + each.bytes(), entry.bytes().begin());
  const Buffer all = working(of_all(spec), entry, "stream '" + name + "'");
  copy_elements(*all, begin, *slot(frame, t), 0, spec.elements());
}

void Interpreter::run_remote(Frame& frame, const Op& op) {
  const Effect& effect = effect_of(op);
  int64_t entry = effect.entry;
  if (op.inputs.size() > 1)
    entry = static_cast<int64_t>(slot(frame, op.inputs[1].tensor)->to_doubles()[0]);
  Buffer& remote = remote_entry(effect.id, entry, frame.replica);
  if (remote == nullptr) {
    remote = std::make_shared<HostTensor>(
        to_working(HostTensor(ir_.remote_buffer_info(effect.id).spec), precision_));
  }
  HostTensor& local = *slot(frame, op.inputs[0].tensor);
  if (effect.kind == Effect::Action::kRemoteLoad) {
    copy_bytes(*remote, local);
  } else {
    copy_bytes(local, *remote);
  }
}

Interpreter::Buffer Interpreter::argument(Frame& frame, const Operand& operand) const {
  return operand.mode == Mode::kRead ? copy(frame, operand.tensor) : slot(frame, operand.tensor);
}

void Interpreter::set_outputs(Frame& frame, const Op& op, const Buffers& values) const {
  SLUICE_CHECK(values.size() == op.outputs.size());
  for (size_t i = 0; i < values.size(); ++i) slot(frame, op.outputs[i]) = values[i];
}

void Interpreter::run_call(Frames& frames, const Op& op) {
  std::vector<Buffers> inputs(frames.size());
  for (size_t f = 0; f < frames.size(); ++f) {
    for (const Operand& o : op.inputs) inputs[f].push_back(argument(frames[f], o));
  }
  const auto outputs = run_callee(ir_.graph(op.callees[0]), frames, inputs);
  for (size_t f = 0; f < frames.size(); ++f) set_outputs(frames[f], op, outputs[f]);
}

// The inputs of the loop's graph are the iteration, the keep-going flag, the carried values and the
// invariants. All carried values are copied together, between iterations. An operand by reference
// is the caller's buffer, so the caller sees the copy. The condition is equal on all replicas.
void Interpreter::run_loop(Frames& frames, const Op& op) {
  const auto o = from_attrs<builtin::LoopOptions>(op.attrs);
  const size_t carried = builtin::carried(op);
  const Graph& wrapper = ir_.graph(op.callees[0]);
  std::vector<Buffers> values(frames.size());
  std::vector<Buffers> outputs(frames.size());
  for (size_t f = 0; f < frames.size(); ++f) {
    for (const Operand& operand : op.inputs) values[f].push_back(argument(frames[f], operand));
    for (size_t k = 0; k < carried; ++k) outputs[f].push_back(copy(frames[f], op.inputs[k].tensor));
  }
  const auto goes_on = [&](const Buffers& operands) {
    return o.condition < 0 || at(operands, o.condition)->as<bool>()[0];
  };
  for (int64_t i = 0; i < o.trips && goes_on(values[0]); ++i) {
    const bool all = std::all_of(values.begin(), values.end(), goes_on);
    require(all, "{}: the condition must be equal on all replicas; reduce it with a collective",
            op.label());
    std::vector<Buffers> inputs(frames.size());
    for (size_t f = 0; f < frames.size(); ++f) {
      for (size_t k = 0; i > 0 && k < carried; ++k) copy_bytes(*outputs[f][k], *values[f][k]);
      const auto number = static_cast<int32_t>(i);
      inputs[f] = {std::make_shared<HostTensor>(HostTensor::of<int32_t>({}, i32, {number})),
                   std::make_shared<HostTensor>(HostTensor::of<bool>({}, boolean, {true}))};
      for (size_t k = 0; k < values[f].size(); ++k) {
        // Pass a copy of a value that the body may only read: changes to it end with the iteration.
        const bool own = op.inputs[k].mode == Mode::kRead;
        inputs[f].push_back(own ? std::make_shared<HostTensor>(*values[f][k]) : values[f][k]);
      }
    }
    outputs = run_callee(wrapper, frames, inputs);
  }
  for (size_t f = 0; f < frames.size(); ++f) set_outputs(frames[f], op, outputs[f]);
}

// Each replica takes the arm that its own condition selects.
void Interpreter::run_branch(Frame& frame, const Op& op) {
  const auto then_inputs = from_attrs<builtin::IfOptions>(op.attrs).then_inputs;
  const bool taken = slot(frame, op.inputs[0].tensor)->as<bool>()[0];
  const auto first = op.inputs.begin() + 1;
  const auto middle = first + then_inputs;
  Buffers inputs;
  for (auto o = taken ? first : middle; o != (taken ? middle : op.inputs.end()); ++o) {
    inputs.push_back(argument(frame, *o));
  }
  set_outputs(frame, op, run_callee(ir_.graph(op.callees[taken ? 0 : 1]), {frame}, {inputs})[0]);
}

// Computes the results of all members before it stores one, because each result needs the operands
// that the other members had before the op.
void Interpreter::run_collective(Frames& frames, const Op& op) {
  require(static_cast<int>(frames.size()) == replicas_,
          "{}: a collective must not be in a branch, which only some replicas may take",
          op.label());
  const ReplicaGrouping grouping = ops::collective_group(op.attrs, replicas_);
  const Graph& graph = frames[0].graph;
  const TensorSpec& spec = graph.spec(op.inputs[0].tensor);
  const TensorSpec& result = graph.spec(op.outputs[0]);
  const std::vector<TensorSpec> specs(grouping.members(0).size(), spec);
  const std::vector<TensorSpec> results{result};
  Buffers made;
  for (int r = 0; r < replicas_; ++r) {
    std::vector<HostTensor*> operands;
    for (const int peer : grouping.members(grouping.group_of(r)))
      operands.push_back(slot(at(frames, peer), op.inputs[0].tensor).get());
    made.push_back(std::make_shared<HostTensor>(
        TensorSpec{result.shape, working_dtype(result.dtype, precision_), {}}));
    operands.push_back(made.back().get());
    run_kernel(OpView(*op.def, op.attrs, specs, results), operands, precision_,
               grouping.member_of(r));
  }
  auto next = frames.begin();
  for (const Buffer& own : made) {
    Frame& frame = *next++;
    if (op.def->aliases.empty()) {
      slot(frame, op.outputs[0]) = own;
    } else {
      copy_bytes(*own, *slot(frame, op.outputs[0]));
    }
  }
}

void Interpreter::run_reference(Frame& frame, const Op& op) {
  std::vector<TensorSpec> in_specs;
  std::vector<TensorSpec> out_specs;
  std::vector<HostTensor*> operands;
  for (const Operand& o : op.inputs) {
    in_specs.push_back(frame.graph.spec(o.tensor));
    SLUICE_CHECK(slot(frame, o.tensor) != nullptr);
    operands.push_back(slot(frame, o.tensor).get());
  }
  for (const TensorId t : op.outputs) {
    const TensorSpec& spec = frame.graph.spec(t);
    out_specs.push_back(spec);
    Buffer& buffer = slot(frame, t);
    const bool aliases = std::any_of(op.def->aliases.begin(), op.def->aliases.end(),
                                     [&](const Alias& a) { return at(op.outputs, a.output) == t; });
    if (!aliases) {
      buffer = std::make_shared<HostTensor>(
          TensorSpec{spec.shape, working_dtype(spec.dtype, precision_), {}});
    }
    operands.push_back(buffer.get());
  }
  run_kernel(OpView(*op.def, op.attrs, in_specs, out_specs), operands, precision_);
}

}  // namespace sluice
