#include "sluice/session.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "sluice/base/layout.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/cpu/cpu.h"
#include "sluice/exe/checker.h"

namespace sluice {
namespace {

constexpr int64_t kChunk = 1 << 16;  // Elements of a variable that are made at once.

template <typename Streams>
std::string names(const Streams& streams) {
  std::string text;
  for (const auto& [id, name] : streams) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::vector<DeviceChoice> devices_of(const SessionOptions& options) {
  std::vector<DeviceChoice> choices{options.device.target == nullptr ? cpu_device()
                                                                     : options.device};
  choices.insert(choices.end(), options.more_devices.begin(), options.more_devices.end());
  return choices;
}

void check_array(const exe::StreamPort& port, int64_t entries, int64_t replicas,
                 const TensorSpec& spec, const std::byte* data) {
  const Shape want = entries_shape(port.spec.shape, entries, replicas);
  require(spec.dtype == port.spec.dtype, "stream '{}': it carries {}, the array is {}", port.name,
          name_of(port.spec.dtype), name_of(spec.dtype));
  require(spec.shape == want,
          "stream '{}': Shape mismatch: the program uses {} entries of {}{}, so the array must be "
          "{}, got {}",
          port.name, entries, to_string(port.spec.shape),
          replicas == 1 ? "" : fmt::format(" in each of {} replicas", replicas), to_string(want),
          to_string(spec.shape));
  require(data != nullptr || spec.elements() == 0, "stream '{}': the array has no memory",
          port.name);
}

void prove(const exe::Executable& executable) {
  const auto violations = exe::check(executable);
  if (violations.empty()) return;
  std::string text;
  for (const exe::Violation& v : violations) text += fmt::format("\n  [{}] {}", v.rule, v.message);
  fail(ErrorKind::kInternal, "the plan's proof fails:{}", text);
}

}  // namespace

Shape entries_shape(const Shape& entry, int64_t entries, int64_t replicas) {
  std::vector<int64_t> dims;
  if (entries != 1) dims.push_back(entries);
  if (replicas != 1) dims.push_back(replicas);
  dims.insert(dims.end(), entry.begin(), entry.end());
  return Shape(std::move(dims));
}

std::string remote_folder(const std::string& remote) {
  constexpr std::string_view kFile = "file:";
  if (remote == "host") return {};
  require(remote.starts_with(kFile) && remote.size() > kFile.size(),
          "remote memory is \"host\" or \"file:FOLDER\", not \"{}\"", remote);
  return remote.substr(kFile.size());
}

DeviceChoice cpu_device(const CpuOptions& options) {
  require(options.memory >= -1, "cpu device: memory {} is negative", options.memory);
  require(options.threads >= 0, "cpu device: {} threads", options.threads);
  return {cpu::make_target(), cpu::make_device(), options.memory,
          options.threads == 0 ? sys::usable_cores() : options.threads};
}

const HostTensor& HostTensors::operator[](const D2hStream& stream) const {
  for (const auto& [s, array] : arrays_) {
    if (s == stream) return array;
  }
  fail(ErrorKind::kUsage, "results: the run wrote nothing to stream '{}'", stream.name);
}

CompileOptions compile_options(const SessionOptions& options) {
  const std::vector<DeviceChoice> choices = devices_of(options);
  CompileOptions result;
  require(choices[0].threads >= 1 && choices[0].threads <= runtime::Pool::kMaxWorkers,
          "session: {} threads; 1 to {} are right", choices[0].threads, runtime::Pool::kMaxWorkers);
  require(options.remote_memory >= -1, "session: the budget of remote memory, {}, is negative",
          options.remote_memory);
  result.remote_memory = options.remote_memory;
  if (!remote_folder(options.remote).empty()) result.remote_space = exe::Space::kFile;
  result.io_queues = options.io_queues;
  result.disable = options.disable;
  result.print_after = options.print_after;
  for (const DeviceChoice& c : choices) {
    require(c.target != nullptr && c.device != nullptr,
            "session: device {} has no target or nothing to run on; cpu_device() gives both",
            result.devices.size());
    require(c.memory >= -1, "session: the budget of device {}, {}, is negative",
            result.devices.size(), c.memory);
    result.devices.push_back({c.target, c.memory, choices[0].threads});
  }
  return result;
}

Session::Session(const Ir& ir, const SessionOptions& options) : ir_(ir) {
  const CompileOptions plan = compile_options(options);
  std::vector<std::shared_ptr<runtime::Device>> devices;
  for (const DeviceChoice& c : devices_of(options)) devices.push_back(c.device);
  compiled_ = compile(ir_, plan);
  if (options.proof == SessionOptions::Proof::kCheck) prove(compiled_.executable);
  executor_ = std::make_unique<runtime::Executor>(
      std::move(compiled_.executable), std::move(devices),
      runtime::ExecutorOptions{.threads = plan.devices[0].threads,
                               .usable_cores = sys::usable_cores(),
                               .folder = remote_folder(options.remote)});
  fill_memory();
}

Session::~Session() = default;

void Session::fill_memory() {
  const exe::Executable& exe = executable();
  for (const exe::ConstantPlan& c : exe.constants) {
    if (c.data.empty()) continue;
    for (int r = 0; r < exe.replicas; ++r)
      std::memcpy(executor_->arena(c.arena, r) + c.offset, c.data.data(), c.data.size());
  }
  for (size_t i = 0; i < exe.variables.size(); ++i) {
    const TensorSpec spec = host_spec(i);
    const int64_t width = size_of(spec.dtype);
    std::vector<std::byte> chunk(static_cast<size_t>(std::min(kChunk, spec.elements()) * width));
    for (int64_t begin = 0; begin < spec.elements(); begin += kChunk) {
      const int64_t count = std::min(kChunk, spec.elements() - begin);
      const std::span<std::byte> part(chunk.data(), static_cast<size_t>(count * width));
      compiled_.variables[i]->initializer.fill(spec, begin, count, part);
      write_chunk(i, begin, part);
    }
  }
}

Binding Session::bind(const std::vector<StreamInput>& inputs,
                      const std::vector<StreamOutput>& outputs, const std::string& entry) const {
  const exe::Executable& exe = executable();
  Binding binding;
  binding.session_ = this;
  binding.program_ = &exe.program(entry);
  binding.streams_ = std::make_unique<runtime::HostStreams>(exe);
  std::map<int32_t, std::string> expected[2];
  std::map<int32_t, std::string> given[2];
  std::map<int32_t, int64_t> count;
  for (const exe::StreamCount& s : binding.program_->streams) {
    const exe::StreamPort& port = exe.streams[static_cast<size_t>(s.stream)];
    expected[port.input ? 0 : 1].emplace(s.stream, port.name);
    count[s.stream] = s.entries;
  }
  const auto note = [&](int side, uint64_t ir, int32_t id, const std::string& name) {
    require(ir == ir_.id(), "stream '{}' belongs to another Ir", name);
    require(given[side].emplace(id, name).second, "stream '{}' is given twice", name);
  };
  for (const StreamInput& i : inputs) note(0, i.stream.ir, i.stream.id, i.stream.name);
  for (const StreamOutput& o : outputs) note(1, o.stream.ir, o.stream.id, o.stream.name);
  for (int side = 0; side < 2; ++side) {
    const char* word = side == 0 ? "input" : "output";
    std::map<int32_t, std::string> missing;
    std::map<int32_t, std::string> unexpected;
    for (const auto& e : expected[side]) {
      if (!given[side].contains(e.first)) missing.insert(e);
    }
    for (const auto& g : given[side]) {
      if (!expected[side].contains(g.first)) unexpected.insert(g);
    }
    require(missing.empty(), "Missing {}: {}; program '{}' expects: {}; given: {}", word,
            names(missing), entry, names(expected[side]), names(given[side]));
    require(unexpected.empty(), "Unexpected {}: {}; program '{}' expects: {}; given: {}", word,
            names(unexpected), entry, names(expected[side]), names(given[side]));
  }
  for (const StreamInput& i : inputs) {
    check_array(exe.streams[static_cast<size_t>(i.stream.id)], count[i.stream.id], exe.replicas,
                i.array.spec, i.array.data);
    binding.streams_->bind(i.stream.id, const_cast<std::byte*>(i.array.data));
  }
  for (const StreamOutput& o : outputs) {
    check_array(exe.streams[static_cast<size_t>(o.stream.id)], count[o.stream.id], exe.replicas,
                o.array.spec, o.array.data);
    binding.streams_->bind(o.stream.id, o.array.data);
  }
  return binding;
}

HostTensors Session::run(const std::vector<StreamInput>& inputs, const std::string& entry) {
  const exe::Executable& exe = executable();
  HostTensors results;
  for (const exe::StreamCount& s : exe.program(entry).streams) {
    const exe::StreamPort& port = exe.streams[static_cast<size_t>(s.stream)];
    if (port.input) continue;
    const D2hStream stream{ir_.id(), s.stream, port.name, port.spec};
    results.arrays_.emplace_back(
        stream,
        HostTensor({entries_shape(port.spec.shape, s.entries, exe.replicas), port.spec.dtype, {}}));
  }
  std::vector<StreamOutput> outputs;
  for (auto& [stream, array] : results.arrays_) outputs.push_back({stream, array});
  Binding binding = bind(inputs, outputs, entry);
  run_into(binding);
  return results;
}

std::vector<std::pair<H2dStream, TensorSpec>> Session::expected_inputs(
    const std::string& entry) const {
  const exe::Executable& exe = executable();
  std::vector<std::pair<H2dStream, TensorSpec>> inputs;
  for (const exe::StreamCount& s : exe.program(entry).streams) {
    const exe::StreamPort& port = exe.streams[static_cast<size_t>(s.stream)];
    if (!port.input) continue;
    inputs.emplace_back(
        H2dStream{ir_.id(), s.stream, port.name, port.spec},
        TensorSpec{entries_shape(port.spec.shape, s.entries, exe.replicas), port.spec.dtype, {}});
  }
  return inputs;
}

void Session::check_binding(const Binding& binding) const {
  require(binding.session_ == this, "run: the binding was not made by this session");
}

void Session::run_into(Binding& binding) {
  check_binding(binding);
  executor_->run(*binding.program_, *binding.streams_);
}

void Session::run_interleaved(Binding& binding, uint64_t seed) {
  check_binding(binding);
  executor_->run_interleaved(*binding.program_, *binding.streams_, seed);
}

size_t Session::index_of(const Tensor& variable) const {
  const TensorInfo& info = variable.graph().info(variable);
  const auto found = info.variable == nullptr ? compiled_.variable_index.end()
                                              : compiled_.variable_index.find(info.variable.get());
  require(found != compiled_.variable_index.end(), "tensor '{}' is not a variable of this session",
          info.name);
  return static_cast<size_t>(found->second);
}

size_t Session::index_of(const Tensor& variable, const ConstArrayView& value) const {
  const size_t v = index_of(variable);
  const std::string& path = executable().variables[v].path;
  const TensorSpec spec = host_spec(v);
  require(value.spec.dtype == spec.dtype, "variable '{}' is {}, the array is {}", path,
          name_of(spec.dtype), name_of(value.spec.dtype));
  require(value.spec.shape == spec.shape, "variable '{}' is {}, the array is {}", path,
          to_string(spec.shape), to_string(value.spec.shape));
  require(value.data != nullptr || value.spec.elements() == 0,
          "variable '{}': the array has no memory", path);
  return v;
}

TensorSpec Session::host_spec(size_t variable) const {
  return sluice::host_spec(executable().variables[variable].spec, *compiled_.variables[variable]);
}

HostTensor Session::read(const Tensor& variable) const { return value_of(index_of(variable)); }

void Session::write(const Tensor& variable, const ConstArrayView& value) {
  write_chunk(index_of(variable, value), 0, {value.data, static_cast<size_t>(value.spec.bytes())});
}

void Session::write(const std::vector<std::pair<Tensor, HostTensor>>& values) {
  for (const auto& [variable, value] : values) index_of(variable, value);  // All or nothing.
  for (const auto& [variable, value] : values) write(variable, value);
}

void Session::read_chunk(const Tensor& variable, int64_t begin, int64_t count,
                         std::span<std::byte> out) const {
  const size_t v = index_of(variable);
  const std::string& path = executable().variables[v].path;
  const TensorSpec spec = host_spec(v);
  const int64_t width = size_of(spec.dtype);
  require(begin >= 0 && count >= 0 && begin <= spec.elements() - count,
          "variable '{}': elements [{}, {}) are outside its {}", path, begin, begin + count,
          spec.elements());
  require(static_cast<int64_t>(out.size()) == count * width,
          "variable '{}': {} elements are {} bytes, the buffer has {}", path, count, count * width,
          out.size());
  read_chunk(v, begin, out);
}

void Session::write_chunk(const Tensor& variable, int64_t begin, std::span<const std::byte> in) {
  const size_t v = index_of(variable);
  const TensorSpec spec = host_spec(v);
  const int64_t width = size_of(spec.dtype);
  const auto bytes = static_cast<int64_t>(in.size());
  require(begin >= 0 && bytes % width == 0 && begin <= spec.elements() - bytes / width,
          "variable '{}': {} bytes at element {} are outside its {} elements",
          executable().variables[v].path, bytes, begin, spec.elements());
  write_chunk(v, begin, in);
}

// Calls f(replica, first element there, first element in the chunk, elements) for what a replica holds of the elements
// [begin, begin + count) of a variable as the host sees it.
template <typename F>
void Session::for_each_part(size_t variable, int64_t begin, int64_t count, F&& f) const {
  const TensorSpec& spec = executable().variables[variable].spec;
  for (int r = 0; r < executable().replicas; ++r) {
    const HostPart part = host_part(spec, *compiled_.variables[variable], r);
    const int64_t from = std::max(begin, part.begin);
    const int64_t to = std::min(begin + count, part.begin + part.count);
    if (from < to) f(r, from - part.begin, from - begin, to - from);
  }
}

void Session::read_chunk(size_t variable, int64_t begin, std::span<std::byte> out) const {
  const exe::VariablePlan& plan = executable().variables[variable];
  const int64_t width = size_of(plan.spec.dtype);
  std::vector<int64_t> known;  // What one replica has, its peers have too.
  for_each_part(variable, begin, static_cast<int64_t>(out.size()) / width,
                [&](int replica, int64_t first, int64_t at, int64_t count) {
                  if (std::find(known.begin(), known.end(), at) != known.end()) return;
                  known.push_back(at);
                  const auto part = out.subspan(static_cast<size_t>(at * width),
                                                static_cast<size_t>(count * width));
                  if (plan.buffer >= 0)
                    return executor_->read(plan.arena, plan.offset + first * width, part, replica);
                  read_elements(plan.spec, parse_layout(plan.layout),
                                executor_->arena(plan.arena, replica) + plan.offset, first, part);
                });
}

void Session::write_chunk(size_t variable, int64_t begin, std::span<const std::byte> in) {
  const exe::VariablePlan& plan = executable().variables[variable];
  const int64_t width = size_of(plan.spec.dtype);
  for_each_part(variable, begin, static_cast<int64_t>(in.size()) / width,
                [&](int replica, int64_t first, int64_t at, int64_t count) {
                  const auto part = in.subspan(static_cast<size_t>(at * width),
                                               static_cast<size_t>(count * width));
                  if (plan.buffer >= 0)
                    return executor_->write(plan.arena, plan.offset + first * width, part, replica);
                  write_elements(plan.spec, parse_layout(plan.layout),
                                 executor_->arena(plan.arena, replica) + plan.offset, first, part);
                });
}

HostTensor Session::value_of(size_t variable) const {
  HostTensor value(host_spec(variable));
  read_chunk(variable, 0, value.bytes());
  return value;
}

void Session::each_variable(const VariableVisitor& visit) const {
  const auto& plans = executable().variables;
  std::vector<size_t> order(plans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return plans[a].path < plans[b].path; });
  for (const size_t v : order) visit(plans[v].path, value_of(v));
}

void Session::restore(const std::vector<NamedArray>& values) {
  std::map<std::string, const HostTensor*> by_path;
  for (const NamedArray& a : values) by_path.emplace(a.name, &a.array);
  const auto& variables = executable().variables;
  require(by_path.size() == variables.size() && values.size() == variables.size(),
          "restore: {} values for {} variables", values.size(), variables.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    const auto found = by_path.find(variables[v].path);
    require(found != by_path.end(), "restore: variable '{}' is missing", variables[v].path);
    const TensorSpec& given = found->second->spec();
    const TensorSpec spec = host_spec(v);
    require(given.shape == spec.shape && given.dtype == spec.dtype,
            "restore: variable '{}' is {}, the array is {}", variables[v].path, to_string(spec),
            to_string(given));
  }
  for (size_t v = 0; v < variables.size(); ++v)
    write_chunk(v, 0, by_path.at(variables[v].path)->bytes());
}

void Session::save(const std::string& path) const {
  std::vector<NamedArray> all;
  each_variable([&](const std::string& name, HostTensor value) {
    all.push_back({name, std::move(value)});
  });
  write_safetensors_file(path, all);
}

std::vector<std::string> Session::load(const std::string& path) {
  const std::vector<NamedArray> arrays = read_safetensors_file(path);
  const auto& variables = executable().variables;
  std::vector<const HostTensor*> found(variables.size(), nullptr);
  std::vector<std::string> unknown;
  for (const NamedArray& a : arrays) {
    const auto plan = std::find_if(variables.begin(), variables.end(),
                                   [&](const auto& p) { return p.path == a.name; });
    if (plan == variables.end()) {
      unknown.push_back(a.name);
      continue;
    }
    const auto v = static_cast<size_t>(plan - variables.begin());
    const TensorSpec spec = host_spec(v);
    if (a.array.shape() != spec.shape || a.array.dtype() != spec.dtype) {
      fail(ErrorKind::kBadFile, "{}: '{}' is {}, the variable is {}", path, a.name,
           to_string(a.array.spec()), to_string(spec));
    }
    found[v] = &a.array;
  }
  for (size_t v = 0; v < variables.size(); ++v) {
    if (found[v] == nullptr)
      fail(ErrorKind::kBadFile, "{}: variable '{}' is missing", path, variables[v].path);
  }
  for (size_t v = 0; v < variables.size(); ++v) write_chunk(v, 0, found[v]->bytes());
  return unknown;
}

int64_t Session::planned_bytes(int device) const {
  return exe::planned_bytes(executable(), device, exe::Space::kDevice);
}
int64_t Session::measured_bytes(int device) const {
  return executor_->measured_bytes(device, exe::Space::kDevice);
}

}  // namespace sluice
