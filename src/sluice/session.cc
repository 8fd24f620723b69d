#include "sluice/session.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "sluice/base/hash.h"
#include "sluice/base/layout.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/cpu/cpu.h"
#include "sluice/exe/checker.h"
#include "sluice/exe/text.h"

namespace sluice {
namespace {

constexpr int64_t kChunk = 1 << 16;  // Elements of a variable that are made at once.

template <typename Streams>
std::string names(const Streams& streams) {
  std::string text;
  for (const auto& [id, name] : streams) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

int cores_of(const SessionOptions& options) {
  return options.group == nullptr ? sys::usable_cores() : options.group->usable_cores();
}

std::vector<DeviceChoice> devices_of(const SessionOptions& options) {
  std::vector<DeviceChoice> choices{options.device};
  if (options.device.target == nullptr) choices[0] = cpu_device({.threads = cores_of(options)});
  choices.insert(choices.end(), options.more_devices.begin(), options.more_devices.end());
  return choices;
}

void check_array(const exe::StreamPort& port, int64_t entries, int64_t replicas,
                 const TensorSpec& spec, const std::byte* data) {
  const Shape want = entries_shape(port.spec.shape, entries, replicas);
  require(spec.dtype == port.spec.dtype,
          "stream '{}': the array must be {}, got {}; cast it with HostTensor::cast", port.name,
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
  if (options.group != nullptr) result.processes = options.group->size();
  const bool file = !remote_folder(options.remote).empty();
  if (file) result.remote_space = exe::Space::kFile;
  require(options.remote_bandwidth == -1 || options.remote_bandwidth > 0,
          "session: remote memory moves no bytes at {} a second; more than 0 are right, or -1 to "
          "leave it as fast as it is",
          options.remote_bandwidth);
  require(file || (!options.remote_direct && !options.verify_remote),
          "session: host memory has no page cache to go past, and no checksums; remote memory in "
          "\"file:FOLDER\" has");
  result.remote_direct = options.remote_direct;
  result.verify_remote = options.verify_remote;
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

Session::Session(const Ir& ir, const SessionOptions& options) : ir_(ir), agreement_(options.group) {
  const CompileOptions plan = compile_options(options);
  std::vector<std::shared_ptr<runtime::Device>> devices;
  for (const DeviceChoice& c : devices_of(options)) devices.push_back(c.device);
  compiled_ = compile(ir_, plan);
  if (options.proof == SessionOptions::Proof::kCheck) exe::prove(compiled_.executable);
  if (plan.processes > 1) agreement_.require_same("plans", exe::to_text(compiled_.executable));
  executor_ = std::make_unique<runtime::Executor>(
      std::move(compiled_.executable), std::move(devices),
      runtime::ExecutorOptions{.threads = plan.devices[0].threads,
                               .usable_cores = cores_of(options),
                               .folder = remote_folder(options.remote),
                               .remote_bandwidth = options.remote_bandwidth,
                               .group = options.group});
  fill_memory();
}

Session::~Session() = default;

void Session::fill_memory() {
  const exe::Executable& exe = executable();
  for (const exe::ConstantPlan& c : exe.constants) {
    if (c.data.empty()) continue;
    const runtime::ReplicaRange& here = executor_->replicas();
    for (int r = here.first; r < here.first + here.count; ++r)
      std::memcpy(executor_->arena(c.arena, r) + c.offset, c.data.data(), c.data.size());
  }
  Digest digest;
  for (size_t i = 0; i < exe.variables.size(); ++i) {
    const TensorSpec spec = host_spec(i);
    const int64_t width = size_of(spec.dtype);
    std::vector<std::byte> chunk(static_cast<size_t>(std::min(kChunk, spec.elements()) * width));
    for (int64_t begin = 0; begin < spec.elements(); begin += kChunk) {
      const int64_t count = std::min(kChunk, spec.elements() - begin);
      const std::span<std::byte> part(chunk.data(), static_cast<size_t>(count * width));
      compiled_.variables[i]->initializer.fill(spec, begin, count, part);
      if (agreement_.size() > 1) digest.add(part);
      write_chunk(i, begin, part);
    }
  }
  agreement_.require_same("initial values", digest.hex());
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
  share_outputs(binding);
}

// Every process has the results of its replicas, and all want those of all.
void Session::share_outputs(const Binding& binding) {
  if (agreement_.size() == 1) return;
  for (const exe::StreamCount& s : binding.program_->streams) {
    const exe::StreamPort& port = executable().streams[static_cast<size_t>(s.stream)];
    if (port.input || s.entries == 0) continue;
    const int64_t bytes = s.entries * executable().replicas * port.spec.bytes();
    agreement_.gather({binding.streams_->entry(s.stream, 0, 0), static_cast<size_t>(bytes)},
                      s.entries);
  }
}

void Session::run_interleaved(Binding& binding, uint64_t seed) {
  check_binding(binding);
  executor_->run_interleaved(*binding.program_, *binding.streams_, seed);
  share_outputs(binding);
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

bool Session::every_process_has(const std::vector<int>& replicas) const {
  const int each = executor_->replicas().count;
  int processes = 0;
  for (size_t i = 0; i < replicas.size(); ++i)  // They ascend.
    processes += i == 0 || replicas[i] / each != replicas[i - 1] / each;
  return processes == agreement_.size();
}

void Session::read_chunk(size_t variable, int64_t begin, std::span<std::byte> out) const {
  const exe::VariablePlan& plan = executable().variables[variable];
  const int64_t width = size_of(plan.spec.dtype);
  struct Part {
    int64_t first;  // Element there.
    int64_t count;
    std::vector<int> replicas;  // That have it.
  };
  std::map<int64_t, Part> parts;  // By first element in the chunk.
  for_each_part(
      variable, begin, static_cast<int64_t>(out.size()) / width,
      [&](int replica, int64_t first, int64_t at, int64_t count) {
        parts.try_emplace(at, Part{first, count, {}}).first->second.replicas.push_back(replica);
      });
  const runtime::ReplicaRange& here = executor_->replicas();
  for (const auto& [at, p] : parts) {
    const auto part =
        out.subspan(static_cast<size_t>(at * width), static_cast<size_t>(p.count * width));
    const bool shared = every_process_has(p.replicas);
    const auto own = shared ? std::find_if(p.replicas.begin(), p.replicas.end(),
                                           [&](int r) { return here.contains(r); })
                            : p.replicas.begin();
    if (here.contains(*own)) {
      if (plan.buffer >= 0) {
        executor_->remote(*own).read(plan.buffer, plan.entry, p.first * width, part);
      } else {
        read_elements(plan.spec, parse_layout(plan.layout),
                      executor_->arena(plan.arena, *own) + plan.offset, p.first, part);
      }
    }
    if (!shared) agreement_.broadcast(*own / here.count, part);
  }
}

void Session::write_chunk(size_t variable, int64_t begin, std::span<const std::byte> in) {
  const exe::VariablePlan& plan = executable().variables[variable];
  const int64_t width = size_of(plan.spec.dtype);
  for_each_part(
      variable, begin, static_cast<int64_t>(in.size()) / width,
      [&](int replica, int64_t first, int64_t at, int64_t count) {
        if (!executor_->replicas().contains(replica)) return;
        const auto part =
            in.subspan(static_cast<size_t>(at * width), static_cast<size_t>(count * width));
        if (plan.buffer >= 0)
          return executor_->remote(replica).write(plan.buffer, plan.entry, first * width, part);
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
  std::vector<NamedSpec> all;
  for (size_t v = 0; v < executable().variables.size(); ++v)
    all.push_back({executable().variables[v].path, host_spec(v)});
  const TensorSource source = [&](size_t v, int64_t offset, std::span<std::byte> out) {
    read_chunk(v, offset / size_of(all[v].spec.dtype), out);
  };
  if (agreement_.rank() == 0) {
    write_safetensors_file(path, all, source);
  } else {
    write_safetensors(all, source, [](std::span<const std::byte>) {});
  }
  agreement_.any(false);  // Nobody goes on before the file is there.
}

std::vector<std::string> Session::load(const std::string& path) {
  const SafetensorsReader file(path);
  const auto& variables = executable().variables;
  std::vector<const SafetensorsEntry*> found(variables.size(), nullptr);
  std::vector<std::string> unknown;
  for (const SafetensorsEntry& a : file.index().entries) {
    const auto plan = std::find_if(variables.begin(), variables.end(),
                                   [&](const auto& p) { return p.path == a.name; });
    if (plan == variables.end()) {
      unknown.push_back(a.name);
      continue;
    }
    const auto v = static_cast<size_t>(plan - variables.begin());
    const TensorSpec spec = host_spec(v);
    if (a.spec.shape != spec.shape || a.spec.dtype != spec.dtype) {
      fail(ErrorKind::kBadFile, "{}: '{}' is {}, the variable is {}", path, a.name,
           to_string(a.spec), to_string(spec));
    }
    found[v] = &a;
  }
  for (size_t v = 0; v < variables.size(); ++v) {
    if (found[v] == nullptr)
      fail(ErrorKind::kBadFile, "{}: variable '{}' is missing", path, variables[v].path);
  }
  std::vector<std::byte> chunk;
  Digest digest;
  for (size_t v = 0; v < variables.size(); ++v) {
    const TensorSpec& spec = found[v]->spec;
    const int64_t width = size_of(spec.dtype);
    for (int64_t begin = 0; begin < spec.elements(); begin += kChunk) {
      chunk.resize(static_cast<size_t>(std::min(kChunk, spec.elements() - begin) * width));
      file.read(*found[v], begin * width, chunk);
      if (agreement_.size() > 1) digest.add(chunk);
      write_chunk(v, begin, chunk);
    }
  }
  agreement_.require_same("values in " + path, digest.hex());
  return unknown;
}

int64_t Session::planned_bytes(int device) const {
  return exe::planned_bytes(executable(), device, exe::Space::kDevice);
}
int64_t Session::measured_bytes(int device) const {
  return executor_->measured_bytes(device, exe::Space::kDevice);
}

}  // namespace sluice
