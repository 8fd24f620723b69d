#include "sluice/interp/interpreter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "sluice/base/flush_to_zero.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace {

void copy_bytes(const HostTensor& from, HostTensor& to) {
  SLUICE_CHECK(from.bytes().size() == to.bytes().size());
  std::copy(from.bytes().begin(), from.bytes().end(), to.bytes().begin());
}

/// Contents of memory that nobody has written: a value that no correct program lets through.
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

Interpreter::Interpreter(Ir ir, Precision precision) : ir_(std::move(ir)), precision_(precision) {
  require(ir_.replication() == 1, "interpreter: runs one replica, the program has {}",
          ir_.replication());
}

// --- values ---------------------------------------------------------------------------------

Interpreter::Buffer Interpreter::working(const TensorSpec& spec, const HostTensor& value,
                                         std::string_view what) const {
  const DType dtype = working_dtype(spec.dtype, precision_);
  require(value.shape() == spec.shape && (value.dtype() == spec.dtype || value.dtype() == dtype),
          "{}: the array is {}, must be {}", what, to_string(value.spec()), to_string(spec));
  return std::make_shared<HostTensor>(value.cast(dtype));
}

HostTensor Interpreter::shown(const TensorSpec& spec, const HostTensor& value) const {
  const HostTensor shaped = value.reshaped(spec.shape);
  return precision_ == Precision::kFloat ? shaped.cast(spec.dtype) : shaped;
}

Interpreter::Buffer& Interpreter::slot(Frame& frame, TensorId t) const {
  return frame.storages[static_cast<size_t>(frame.graph.info(t).storage)];
}

Interpreter::Buffer Interpreter::copy(Frame& frame, TensorId t) const {
  return std::make_shared<HostTensor>(slot(frame, t)->reshaped(frame.graph.spec(t).shape));
}

Interpreter::Buffer& Interpreter::variable(const std::shared_ptr<VariableInfo>& info,
                                           const TensorSpec& spec) {
  const bool remote = info->home.remote();
  Buffer& own = remote ? remote_entry(info->home.buffer, info->home.entry) : variables_[info];
  if (own == nullptr)
    own = std::make_shared<HostTensor>(to_working(info->initializer.evaluate(spec), precision_));
  return own;
}

Interpreter::Buffer& Interpreter::remote_entry(int32_t id, int64_t entry) {
  const RemoteBufferInfo& buffer = ir_.remote_buffer_info(id);
  require(entry >= 0 && entry < buffer.entries,
          "remote buffer {}: entry {} is outside its {} entries", id, entry, buffer.entries);
  return remote_[{id, entry}];
}

Interpreter::Buffer& Interpreter::remote_entry(const RemoteBuffer& buffer, int64_t entry) {
  require(buffer.ir == ir_.id(), "remote buffer {} belongs to another Ir", buffer.id);
  return remote_entry(buffer.id, entry);
}

void Interpreter::place_remote_variables() {
  for (const auto& [name, id] : ir_.entries()) {
    for (const Tensor& t : ir_.graph(id).variables()) {
      const TensorInfo& info = ir_.graph(id).info(t);
      if (info.variable->home.buffer > 0) variable(info.variable, info.spec);
    }
  }
}

void Interpreter::write(const Tensor& t, const HostTensor& value) {
  const TensorInfo& info = t.graph().info(t);
  require(info.kind == TensorKind::kVariable, "write: '{}' is not a variable", info.name);
  variable(info.variable, info.spec) = working(info.spec, value, "variable '" + info.name + "'");
}

HostTensor Interpreter::read(const Tensor& t) {
  const TensorInfo& info = t.graph().info(t);
  require(info.kind == TensorKind::kVariable, "read: '{}' is not a variable", info.name);
  return shown(info.spec, *variable(info.variable, info.spec));
}

void Interpreter::write_remote(const RemoteBuffer& buffer, int64_t entry, const HostTensor& value) {
  remote_entry(buffer, entry) =
      working(buffer.spec, value, fmt::format("remote buffer {}", buffer.id));
}

HostTensor Interpreter::read_remote(const RemoteBuffer& buffer, int64_t entry) {
  const Buffer& value = remote_entry(buffer, entry);
  return value == nullptr ? shown(buffer.spec, to_working(HostTensor(buffer.spec), precision_))
                          : shown(buffer.spec, *value);
}

// --- graphs ---------------------------------------------------------------------------------

Interpreter::Frame Interpreter::open(const Graph& graph) {
  Frame frame{graph, std::vector<Buffer>(static_cast<size_t>(graph.storage_count()))};
  for (TensorId t = 0; t < graph.tensor_count(); ++t) {
    const TensorInfo& info = graph.info(t);
    if (info.kind == TensorKind::kVariable) slot(frame, t) = variable(info.variable, info.spec);
    if (info.kind == TensorKind::kConstant) {
      slot(frame, t) = std::make_shared<HostTensor>(to_working(*info.constant, precision_));
    }
  }
  return frame;
}

Collected Interpreter::run(const std::string& entry, const std::vector<Feed>& feeds) {
  const auto found = ir_.entries().find(entry);
  require(found != ir_.entries().end(), "run: there is no entry graph '{}'", entry);
  check_calls(ir_);
  streams_.clear();
  collected_ = {};
  for (const Feed& feed : feeds) {
    require(feed.stream.ir == ir_.id(), "run: stream '{}' belongs to another Ir", feed.stream.name);
    require(streams_.emplace(feed.stream.id, StreamState{&feed.entries, 0}).second,
            "run: stream '{}' is given twice", feed.stream.name);
  }
  place_remote_variables();
  Frame frame = open(ir_.graph(found->second));
  run_ops(frame);
  for (const auto& [id, state] : streams_) {
    require(state.next == state.entries->size(), "run: stream '{}' has {} entries, {} were read",
            ir_.stream(id).name, state.entries->size(), state.next);
  }
  return std::move(collected_);
}

std::vector<HostTensor> Interpreter::evaluate(const Graph& graph,
                                              const std::vector<HostTensor>& inputs) {
  const auto& ids = graph.input_ids();
  require(inputs.size() == ids.size(), "evaluate: graph {} has {} inputs, {} arrays given",
          graph.name(), ids.size(), inputs.size());
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < ids.size(); ++i) {
    buffers.push_back(
        working(graph.spec(ids[i]), inputs[i], "input '" + graph.info(ids[i]).name + "'"));
  }
  const std::vector<Buffer> outputs = run_callee(graph, buffers);
  std::vector<HostTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(shown(graph.spec(graph.output_ids()[i]), *outputs[i]));
  }
  return results;
}

std::vector<Interpreter::Buffer> Interpreter::run_callee(const Graph& graph,
                                                         const std::vector<Buffer>& inputs) {
  Frame frame = open(graph);
  for (size_t i = 0; i < inputs.size(); ++i) slot(frame, graph.input_ids()[i]) = inputs[i];
  run_ops(frame);
  std::vector<Buffer> outputs;
  for (const TensorId t : graph.output_ids()) outputs.push_back(copy(frame, t));
  return outputs;
}

void Interpreter::run_ops(Frame& frame) {
  for (const Op& op : frame.graph.ops()) {
    try {
      run_op_in(frame, op);
    } catch (Error& e) {
      throw e.note(fmt::format("running {} of graph {}", op.label(), frame.graph.name()));
    }
    if (!observer_) continue;
    std::vector<HostTensor> outputs;
    for (const TensorId t : op.outputs)
      outputs.push_back(shown(frame.graph.spec(t), *slot(frame, t)));
    observer_(frame.graph, op, outputs);
  }
}

void Interpreter::run_op_in(Frame& frame, const Op& op) {
  if (op.def == &builtin::init()) return run_init(frame, op);
  if (op.def == &builtin::host_load() || op.def == &builtin::host_store())
    return run_stream(frame, op);
  if (op.def == &builtin::remote_load() || op.def == &builtin::remote_store())
    return run_remote(frame, op);
  if (op.def == &builtin::call()) return run_call(frame, op);
  if (op.def == &builtin::loop()) return run_loop(frame, op);
  if (op.def == &builtin::branch()) return run_branch(frame, op);
  run_reference(frame, op);
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
  const std::string& name = ir_.stream(effect.id).name;
  if (effect.kind == Effect::Kind::kStreamWrite) {
    collected_.entries_[effect.id].push_back(shown(frame.graph.spec(t), *slot(frame, t)));
    return;
  }
  StreamState& state = streams_[effect.id];
  require(state.entries != nullptr, "stream '{}': nothing is bound to it", name);
  require(state.next < state.entries->size(), "stream '{}': only {} entries are bound to it", name,
          state.entries->size());
  copy_bytes(*working(frame.graph.spec(t), (*state.entries)[state.next++], "stream '" + name + "'"),
             *slot(frame, t));
}

void Interpreter::run_remote(Frame& frame, const Op& op) {
  const Effect& effect = effect_of(op);
  int64_t entry = effect.entry;
  if (op.inputs.size() > 1)
    entry = static_cast<int64_t>(slot(frame, op.inputs[1].tensor)->to_doubles()[0]);
  Buffer& remote = remote_entry(effect.id, entry);
  if (remote == nullptr) {
    remote = std::make_shared<HostTensor>(
        to_working(HostTensor(ir_.remote_buffer_info(effect.id).spec), precision_));
  }
  HostTensor& local = *slot(frame, op.inputs[0].tensor);
  if (effect.kind == Effect::Kind::kRemoteLoad) {
    copy_bytes(*remote, local);
  } else {
    copy_bytes(local, *remote);
  }
}

Interpreter::Buffer Interpreter::argument(Frame& frame, const Operand& operand) const {
  return operand.mode == Mode::kRead ? copy(frame, operand.tensor) : slot(frame, operand.tensor);
}

void Interpreter::set_outputs(Frame& frame, const Op& op, const std::vector<Buffer>& values) const {
  SLUICE_CHECK(values.size() == op.outputs.size());
  for (size_t i = 0; i < values.size(); ++i) slot(frame, op.outputs[i]) = values[i];
}

void Interpreter::run_call(Frame& frame, const Op& op) {
  std::vector<Buffer> inputs;
  for (const Operand& o : op.inputs) inputs.push_back(argument(frame, o));
  set_outputs(frame, op, run_callee(ir_.graph(op.callees[0]), inputs));
}

// The wrapper's inputs are iteration, keep-going, the carried values, the invariants. Carried
// values move between iterations only, all at once; the copy into a by-reference one is seen by the
// caller, as it is the same storage.
void Interpreter::run_loop(Frame& frame, const Op& op) {
  const auto o = from_attrs<builtin::LoopOptions>(op.attrs);
  const auto carried = static_cast<size_t>(o.carried);
  const Graph& wrapper = ir_.graph(op.callees[0]);
  std::vector<Buffer> values;
  for (const Operand& operand : op.inputs) values.push_back(argument(frame, operand));
  std::vector<Buffer> outputs;
  for (size_t k = 0; k < carried; ++k) outputs.push_back(copy(frame, op.inputs[k].tensor));
  for (int64_t i = 0; i < o.trips; ++i) {
    if (i > 0) {
      for (size_t k = 0; k < carried; ++k) copy_bytes(*outputs[k], *values[k]);
    }
    std::vector<Buffer> inputs{
        std::make_shared<HostTensor>(HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(i)})),
        std::make_shared<HostTensor>(HostTensor::of<bool>({}, boolean, {true}))};
    for (size_t k = 0; k < values.size(); ++k) {
      // What the body does to a value that it was not given by reference is gone with the
      // iteration.
      const bool own = op.inputs[k].mode == Mode::kRead;
      inputs.push_back(own ? std::make_shared<HostTensor>(*values[k]) : values[k]);
    }
    outputs = run_callee(wrapper, inputs);
  }
  set_outputs(frame, op, outputs);
}

void Interpreter::run_branch(Frame& frame, const Op& op) {
  const auto then_inputs = from_attrs<builtin::IfOptions>(op.attrs).then_inputs;
  const bool taken = slot(frame, op.inputs[0].tensor)->as<bool>()[0];
  const auto first = op.inputs.begin() + 1;
  const auto middle = first + then_inputs;
  std::vector<Buffer> inputs;
  for (auto o = taken ? first : middle; o != (taken ? middle : op.inputs.end()); ++o) {
    inputs.push_back(argument(frame, *o));
  }
  set_outputs(frame, op, run_callee(ir_.graph(op.callees[taken ? 0 : 1]), inputs));
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
    const bool aliases =
        std::any_of(op.def->aliases.begin(), op.def->aliases.end(),
                    [&](const Alias& a) { return op.outputs[static_cast<size_t>(a.output)] == t; });
    if (!aliases) {
      buffer = std::make_shared<HostTensor>(
          TensorSpec{spec.shape, working_dtype(spec.dtype, precision_), {}});
    }
    operands.push_back(buffer.get());
  }
  run_kernel(OpView(*op.def, op.attrs, in_specs, out_specs), operands, precision_);
}

}  // namespace sluice
