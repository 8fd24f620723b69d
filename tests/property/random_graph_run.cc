#include "random_graph_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "random_graph_ops.h"
#include "sluice/compiler/compile.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/builtin.h"
#include "value_program.h"

namespace sluice::property {
namespace {

// Counts the entries of each stream that a graph uses.
std::map<int32_t, int64_t> stream_counts(const Graph& graph) {
  std::map<int32_t, int64_t> counts;
  const Ir ir = graph.ir();
  for (const Op& op : graph.ops()) {
    for (const Effect& e : op.effects) {
      if (e.kind == Effect::Action::kStreamRead || e.kind == Effect::Action::kStreamWrite)
        ++counts[e.id];
    }
    if (op.callees.empty()) continue;
    const int64_t times =
        op.def == &builtin::loop() ? from_attrs<builtin::LoopOptions>(op.attrs).trips : 1;
    for (const auto& [stream, count] : stream_counts(ir.graph(op.callees[0])))
      counts[stream] += times * count;
  }
  return counts;
}

Graph& entry_of(const RandomProgram& program, const std::string& name) {
  return program.ir.graph(program.ir.entries().at(name));
}

uint64_t feed_seed(size_t run, int32_t stream, int64_t entry) {
  return (run * 100 + static_cast<uint64_t>(stream)) * 1000 + static_cast<uint64_t>(entry) + 5000;
}

std::string label(size_t run, const Ir& ir, int32_t stream, int64_t entry) {
  return fmt::format("run {}, stream '{}' entry {}", run, ir.stream(stream).name, entry);
}

std::string remote_label(int32_t buffer, int64_t entry) {
  return fmt::format("remote buffer {} entry {}", buffer, entry);
}

HostTensor input_entry(const RandomProgram& program, size_t run, int32_t stream, int64_t entry) {
  const auto found = program.inputs.find(stream);
  if (found != program.inputs.end()) return found->second;
  return random_array(program.ir.stream(stream).spec, feed_seed(run, stream, entry));
}

// Returns the entries of the run's input streams. A stream that the run does not read is left out.
StreamEntries inputs_of(const RandomProgram& program, size_t run) {
  StreamEntries inputs;
  for (const auto& [id, count] : stream_counts(entry_of(program, program.runs[run]))) {
    const StreamInfo& info = program.ir.stream(id);
    if (!info.input) continue;
    std::vector<HostTensor>& entries = inputs[id];
    for (int64_t k = 0; k < count; ++k) entries.push_back(input_entry(program, run, id, k));
  }
  return inputs;
}

// Returns one handle for each variable.
std::vector<Tensor> variables(const RandomProgram& program) {
  std::vector<Tensor> all;
  std::set<const VariableInfo*> seen;
  for (const auto& [name, id] : program.ir.entries()) {
    for (const Tensor& t : program.ir.graph(id).variables()) {
      if (seen.insert(t.graph().info(t).variable.get()).second) all.push_back(t);
    }
  }
  return all;
}

std::vector<std::byte> entries_of(const RandomProgram& program, size_t run, int32_t stream,
                                  int64_t count) {
  std::vector<std::byte> bytes;
  for (int64_t k = 0; k < count; ++k) {
    const HostTensor entry = input_entry(program, run, stream, k);
    bytes.insert(bytes.end(), entry.bytes().begin(), entry.bytes().end());
  }
  return bytes;
}

TensorSpec array_spec(const TensorSpec& spec, int64_t count) {
  if (count == 1) return spec;
  std::vector<int64_t> dims{count};
  dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
  return {Shape(std::move(dims)), spec.dtype, {}};
}

void run_once(Session& session, const RandomProgram& program, size_t run, const Way& way,
              Outcome& outcome) {
  const Ir& ir = program.ir;
  const auto counts = stream_counts(entry_of(program, program.runs[run]));
  std::map<int32_t, std::vector<std::byte>> arrays;
  std::vector<StreamInput> inputs;
  std::vector<StreamOutput> outputs;
  for (const auto& [id, count] : counts) {
    if (count == 0) continue;
    const StreamInfo& info = ir.stream(id);
    auto& bytes = arrays[id];
    if (info.input) {
      bytes = entries_of(program, run, id, count);
      inputs.push_back({H2dStream{ir.id(), id, info.name, info.spec},
                        {array_spec(info.spec, count), bytes.data()}});
    } else {
      bytes.resize(static_cast<size_t>(count * info.spec.bytes()));
      outputs.push_back({D2hStream{ir.id(), id, info.name, info.spec},
                         {array_spec(info.spec, count), bytes.data()}});
    }
  }
  Binding binding = session.bind(inputs, outputs, program.runs[run]);
  if (way.interleaved) {
    session.run_interleaved(binding, 77 + run);
  } else {
    session.run_into(binding);
  }
  for (const auto& [id, count] : counts) {
    const StreamInfo& info = ir.stream(id);
    if (info.input) continue;
    for (int64_t k = 0; k < count; ++k) {
      HostTensor entry(info.spec);
      std::memcpy(entry.bytes().data(), arrays[id].data() + k * info.spec.bytes(),
                  entry.bytes().size());
      outcome.emplace_back(label(run, ir, id, k), std::move(entry));
    }
  }
}

bool same(const HostTensor& a, const HostTensor& b) {
  if (a.same_bits(b)) return true;
  if (a.spec() != b.spec() || !is_float(a.dtype())) return false;
  const std::vector<double> x = a.to_doubles();
  const std::vector<double> y = b.to_doubles();
  for (size_t i = 0; i < x.size(); ++i) {
    const bool equal = x[i] == y[i] && std::signbit(x[i]) == std::signbit(y[i]);
    if (!equal && !(std::isnan(x[i]) && std::isnan(y[i]))) return false;
  }
  return true;
}

}  // namespace

std::string Way::text() const {
  return fmt::format("{} devices, {} threads, {} io queues{}, disabled: {}", devices, threads,
                     io_queues, interleaved ? " interleaved" : "", fmt::join(disable, " "));
}

Outcome interpreted(const RandomProgram& program, Remote remote) {
  const Ir& ir = program.ir;
  Interpreter interpreter(ir, Precision::kFloat);
  Outcome outcome;
  for (size_t run = 0; run < program.runs.size(); ++run) {
    const auto counts = stream_counts(entry_of(program, program.runs[run]));
    std::vector<HostTensor> arrays;
    std::vector<StreamInput> inputs;
    const auto entries_by_stream = inputs_of(program, run);
    arrays.reserve(entries_by_stream.size());
    for (const auto& [id, entries] : entries_by_stream) {
      if (entries.empty()) continue;  // The run reads nothing of this stream.
      const StreamInfo& info = ir.stream(id);
      arrays.push_back(HostTensor::stack(entries));
      inputs.push_back({H2dStream{ir.id(), id, info.name, info.spec}, arrays.back()});
    }
    const Collected collected = interpreter.run(inputs, program.runs[run]);
    for (const auto& [id, count] : counts) {
      const StreamInfo& info = ir.stream(id);
      if (info.input) continue;
      const auto& entries = collected.entries(D2hStream{ir.id(), id, info.name, info.spec});
      SLUICE_CHECK(static_cast<int64_t>(entries.size()) == count);
      for (int64_t k = 0; k < count; ++k)
        outcome.emplace_back(label(run, ir, id, k), entries[static_cast<size_t>(k)]);
    }
  }
  for (const Tensor& v : variables(program))
    outcome.emplace_back("variable '" + v.name() + "'", interpreter.read(v));
  if (remote == Remote::kLeftOut) return outcome;
  for (int32_t b = 1; b <= ir.remote_buffer_count(); ++b) {
    const RemoteBuffer buffer = ir.remote_buffer({b, 0});
    for (int64_t k = 0; k < ir.remote_entries(buffer); ++k)
      outcome.emplace_back(remote_label(b, k), interpreter.read_remote(buffer, k));
  }
  return outcome;
}

Outcome executed(const RandomProgram& program, const Way& way) {
  const auto device = [&] {
    return way.device.target == nullptr ? cpu_device({.threads = way.threads}) : way.device;
  };
  SessionOptions options{.device = device(),
                         .io_queues = way.io_queues,
                         .disable = way.disable,
                         .proof = SessionOptions::Proof::kCheck};
  for (int d = 1; d < way.devices; ++d) options.more_devices.push_back(device());
  Session session(program.ir, options);
  for (int d = 0; d < way.devices; ++d) {
    if (session.planned_bytes(d) == session.measured_bytes(d)) continue;
    fail(ErrorKind::kInternal, "device {}: {} bytes planned, {} measured", d,
         session.planned_bytes(d), session.measured_bytes(d));
  }
  Outcome outcome;
  for (size_t run = 0; run < program.runs.size(); ++run)
    run_once(session, program, run, way, outcome);
  for (const Tensor& v : variables(program))
    outcome.emplace_back("variable '" + v.name() + "'", session.read(v));
  return outcome;
}

Compiled compiled(const Ir& ir, int devices, const std::vector<std::string>& disable,
                  exe::Space remote) {
  const DeviceChoice cpu = cpu_device({.threads = 2});
  const DeviceSpec one{cpu.target, -1, cpu.threads};
  return compile(ir, {.devices = std::vector<DeviceSpec>(static_cast<size_t>(devices), one),
                      .remote_space = remote,
                      .disable = disable});
}

Outcome by_values(const RandomProgram& program, const Compiled& compiled) {
  const Ir& ir = program.ir;
  std::vector<HostTensor> first;
  for (size_t v = 0; v < compiled.variables.size(); ++v) {
    first.push_back(compiled.variables[v]->initializer.evaluate(
        compiled.executable.variables[exe::VariableId(v)].spec));
  }
  ValueProgram values(compiled.executable, first);
  Outcome outcome;
  for (size_t run = 0; run < program.runs.size(); ++run) {
    for (auto& [id, entries] : values.run(program.runs[run], inputs_of(program, run))) {
      for (size_t k = 0; k < entries.size(); ++k) {
        outcome.emplace_back(label(run, ir, id, static_cast<int64_t>(k)), std::move(entries[k]));
      }
    }
  }
  for (const Tensor& v : variables(program)) {
    const int32_t index = compiled.variable_index.at(v.graph().info(v).variable.get());
    outcome.emplace_back("variable '" + v.name() + "'", values.variable(index));
  }
  // Buffers are numbered from 1 in the program and from 0 in its plan.
  for (int32_t b = 1; b <= ir.remote_buffer_count(); ++b) {
    for (int64_t k = 0; k < ir.remote_buffer_info(b).entries; ++k)
      outcome.emplace_back(remote_label(b, k), values.remote(b - 1, k));
  }
  return outcome;
}

namespace {

std::string first_difference(const Outcome& want, const Outcome& got,
                             bool (*same)(const HostTensor&, const HostTensor&)) {
  if (want.size() != got.size())
    return fmt::format("{} results instead of {}", got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (same(want[i].second, got[i].second)) continue;
    return fmt::format(
        "{} ({}):\n  want {}\n  got  {}", want[i].first, to_string(want[i].second.spec()),
        fmt::join(want[i].second.to_doubles(), " "), fmt::join(got[i].second.to_doubles(), " "));
  }
  return "";
}

}  // namespace

std::string difference(const Outcome& want, const Outcome& got) {
  return first_difference(want, got, same);
}

std::string bit_difference(const Outcome& want, const Outcome& got) {
  return first_difference(want, got,
                          [](const HostTensor& a, const HostTensor& b) { return a.same_bits(b); });
}

Comparison value_runs(const RandomProgram& program, const Compiled& right) {
  return [&program, plan = right,
          want = interpreted(program, Remote::kShown)](const exe::Executable& other) mutable {
    plan.executable = other;
    try {
      return bit_difference(want, by_values(program, plan));
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
}

bool has_nonfinite(const Outcome& outcome) {
  return std::any_of(outcome.begin(), outcome.end(), [](const auto& entry) {
    if (entry.second.dtype() != f32) return false;
    const auto values = entry.second.template as<float>();
    return std::any_of(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  });
}

}  // namespace sluice::property
