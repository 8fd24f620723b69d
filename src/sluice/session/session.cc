#include "sluice/session/session.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "sluice/base/system/cgroup.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"
#include "sluice/report/summary.h"
#include "sluice/runtime/executor.h"
#include "sluice/session/async_state.h"
#include "sluice/session/call_queue.h"
#include "sluice/session/checkpoint.h"
#include "sluice/session/profile.h"
#include "sluice/session/variables.h"

namespace sluice {
namespace {

// Returns the variables in ascending order of their paths.
std::vector<size_t> by_path(const Variables& variables) {
  std::vector<size_t> order(variables.count());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return variables.path(a) < variables.path(b); });
  return order;
}

}  // namespace

Session::Session(const Ir& ir, const SessionOptions& options)
    : Session(ir, compile(ir, compile_options(options)), options) {}

Session::Session(const Ir& ir, Compiled compiled, const SessionOptions& options)
    : ir_(ir),
      compiled_(std::make_unique<Compiled>(std::move(compiled))),
      agreement_(std::make_unique<runtime::Agreement>(options.group)),
      report_(SessionReport::open(options)),
      calls_(std::make_unique<CallQueue>()) {
  const CompileOptions plan = compile_options(options);
  std::vector<std::shared_ptr<runtime::Device>> devices;
  devices.push_back(options.device.device);
  for (const DeviceChoice& c : options.more_devices) devices.push_back(c.device);
  if (const auto excess = exe::find_excess(compiled_->executable, compiled_->memories)) {
    if (report_ != nullptr) report_->write_refused(compiled_->executable, *excess);
    throw *excess;
  }
  if (report_ != nullptr) report_->begin(compiled_->executable);
  if (options.proof == SessionOptions::Proof::kCheck) check::prove(compiled_->executable);
  if (plan.processes > 1) agreement_->require_same("plans", exe::to_text(compiled_->executable));
  executor_ = std::make_unique<runtime::Executor>(
      std::move(compiled_->executable), std::move(devices),
      runtime::ExecutorOptions{
          .threads = plan.devices[exe::DeviceId(0)].threads,
          .usable_cores = usable_cores(options),
          .folder = remote_folder(options.remote),
          .host_memory = sys::available_memory(),
          .remote_bandwidth = options.remote_bandwidth,
          .group = options.group,
          .map = options.map,
          .agreement = agreement_->size() > 1 ? agreement_.get() : nullptr,
          .stop_deadline = options.stop_deadline,
          .feed_deadline = options.feed_deadline,
          .events = report_ != nullptr && options.events == 0 ? kReportEvents : options.events});
  variables_ = std::make_unique<Variables>(*compiled_, *executor_, *agreement_);
  by_path_ = by_path(*variables_);
  variables_->initialize();
  measure();
}

// Owners of threads, locks or files that belong to the parent process are not destroyed.
void Session::leave_to_parent() {
  static_cast<void>(executor_.release());
  static_cast<void>(variables_.release());
  static_cast<void>(agreement_.release());
  static_cast<void>(report_.release());
  if (async_ != nullptr) new std::shared_ptr<AsyncRun::State>(async_);  // Counts for ever.
}

Session::~Session() {
  if (!calls_->in_own_process()) {
    leave_to_parent();
    return;
  }
  if (async_ != nullptr) {
    async_->stop_run();
    async_->join();
  }
  executor_->close_feeds();  // Before members end: a source may call stop() or progress().
  if (report_ != nullptr) report_->write(*this);
  if (async_ == nullptr) return;
  const std::lock_guard hold(async_->lock);
  async_->session_lives = false;
}

/// Marks the session as running, for run_async().
class Session::Busy {
 public:
  explicit Busy(std::atomic<bool>& busy) : busy_(busy) { busy_ = true; }
  ~Busy() { busy_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& busy_;
};

/// A call in progress. It waits until the calls before it have ended. A source or sink of a feed is
/// refused instead: the run may wait for it.
class Session::Call {
 public:
  Call(const Session& session, const char* name) : lock_(*session.calls_, std::defer_lock) {
    session.calls_->require_own_process(name);
    if (!runtime::on_feed_thread()) lock_.lock();
    require((lock_.owns_lock() || lock_.try_lock()) && !session.busy_.load(),
            "{}: the session must have no run in progress, got one; wait for its end or stop it",
            name);
  }

 private:
  std::unique_lock<CallQueue> lock_;
};

Binding Session::bind(const std::vector<StreamInput>& inputs,
                      const std::vector<StreamOutput>& outputs, const std::string& program) const {
  Binding binding;
  binding.session_ = this;
  binding.program_ = &executable().program(program);
  binding.streams_ = bind_streams(executable(), *binding.program_, ir_.id(), inputs, outputs);
  return binding;
}

HostTensors Session::new_outputs(const std::string& program) const {
  const exe::Executable& exe = executable();
  const Ids<exe::StreamId, exe::FeedId> feeds = exe::feeds_of_streams(exe);
  HostTensors results;
  for (const exe::StreamCount& s : exe.program(program).streams) {
    const exe::StreamPort& port = exe.streams[s.stream];
    if (port.input || feeds[s.stream] >= 0) continue;
    const D2hStream stream{ir_.id(), s.stream, port.name, port.spec};
    results.arrays_.emplace_back(
        stream,
        HostTensor({entries_shape(port.spec.shape, s.entries, exe.replicas), port.spec.dtype, {}}));
  }
  return results;
}

HostTensors Session::run(const std::vector<StreamInput>& inputs, const std::string& program) {
  HostTensors results = new_outputs(program);
  std::vector<StreamOutput> outputs;
  for (auto& [stream, array] : results.arrays_) outputs.push_back({stream, array});
  Binding binding = bind(inputs, outputs, program);
  run_into(binding);
  return results;
}

AsyncRun Session::run_async(const std::vector<StreamInput>& inputs, const std::string& program) {
  HostTensors results = new_outputs(program);
  std::vector<StreamOutput> outputs;
  for (auto& [stream, array] : results.arrays_) outputs.push_back({stream, array});
  AsyncRun run = run_async(bind(inputs, outputs, program));
  // Moving the arrays does not move their bytes. Only wait() reads the results.
  run.state_->results = std::move(results);
  return run;
}

AsyncRun Session::run_async(Binding binding) {
  check_binding(binding);
  const Call call(*this, "run");
  const auto state = std::make_shared<AsyncRun::State>();
  state->busy = std::make_shared<Busy>(busy_);
  if (async_ != nullptr) async_->join();
  state->binding = std::move(binding);
  state->stop = [this] { return stop(); };
  state->progress = [this] { return executor_->feeds().progress(); };
  state->start([this, run = state.get()] { run_bound(run->binding); });
  async_ = state;
  return AsyncRun(state);
}

int32_t Session::feed_index(uint64_t ir, int32_t id, const std::string& name) const {
  require(ir == ir_.id(), "bind_feed: feed '{}' belongs to another Ir", name);
  const auto feeds = static_cast<int64_t>(executable().feeds.size());
  require(id >= 0 && id < feeds,
          "bind_feed: feed '{}' must be made before the session, got a later one", name);
  return id;
}

void Session::bind_feed(const Infeed& feed, std::shared_ptr<FeedSource> source) {
  const Call call(*this, "bind_feed");
  const int32_t index = feed_index(feed.ir, feed.id, feed.name);
  require(source != nullptr, "bind_feed: feed '{}' must get a source, got a null pointer",
          feed.name);
  executor_->bind_feed(exe::FeedId(index), std::move(source));
}

void Session::bind_feed(const Outfeed& feed, std::shared_ptr<FeedSink> sink) {
  const Call call(*this, "bind_feed");
  const int32_t index = feed_index(feed.ir, feed.id, feed.name);
  require(sink != nullptr, "bind_feed: feed '{}' must get a sink, got a null pointer", feed.name);
  executor_->bind_feed(exe::FeedId(index), std::move(sink));
}

std::vector<std::pair<H2dStream, TensorSpec>> Session::expected_inputs(
    const std::string& program) const {
  const exe::Executable& exe = executable();
  const Ids<exe::StreamId, exe::FeedId> feeds = exe::feeds_of_streams(exe);
  std::vector<std::pair<H2dStream, TensorSpec>> inputs;
  for (const exe::StreamCount& s : exe.program(program).streams) {
    const exe::StreamPort& port = exe.streams[s.stream];
    if (!port.input || feeds[s.stream] >= 0) continue;
    inputs.emplace_back(
        H2dStream{ir_.id(), s.stream, port.name, port.spec},
        TensorSpec{entries_shape(port.spec.shape, s.entries, exe.replicas), port.spec.dtype, {}});
  }
  return inputs;
}

void Session::check_binding(const Binding& binding) const {
  require(binding.session_ == this, "run: the binding was not made by this session");
}

void Session::begin_run(const Binding& binding) {
  if (report_ != nullptr) report_->begin_run(*this, binding.program_->name);
  const exe::Executable& exe = executable();
  const auto& finals = binding.program_->finals;
  changes_ += std::any_of(finals.begin(), finals.end(), [&](const exe::Final& f) {
    return f.value != exe.variables[f.variable].value;
  });
}

void Session::run_bound(const Binding& binding) {
  begin_run(binding);
  executor_->run(*binding.program_, *binding.streams_);
  if (report_ != nullptr) report_->end_run();
}

void Session::run_into(Binding& binding) {
  check_binding(binding);
  const Call call(*this, "run");
  run_bound(binding);
}

void Session::run_interleaved(Binding& binding, uint64_t seed) {
  check_binding(binding);
  const Call call(*this, "run");
  begin_run(binding);
  executor_->run_interleaved(*binding.program_, *binding.streams_, seed);
  if (report_ != nullptr) report_->end_run();
}

bool Session::stop() {
  calls_->require_own_process("stop");
  return executor_->stop();
}

HostTensor Session::read(const Tensor& variable) const {
  const Call call(*this, "read");
  return variables_->value(variables_->index_of(variable));
}

void Session::write(const Tensor& variable, const ConstArrayView& value) {
  const Call call(*this, "write");
  ++changes_;
  variables_->write(variables_->index_of(variable, value), 0,
                    {value.data, value.data + value.spec.bytes()});
}

void Session::write(const std::vector<std::pair<Tensor, HostTensor>>& values) {
  const Call call(*this, "write");
  // Check all values before the first one is written.
  for (const auto& [variable, value] : values) variables_->index_of(variable, value);
  for (const auto& [variable, value] : values) write(variable, value);
}

void Session::read_chunk(const Tensor& variable, int64_t begin, int64_t count,
                         std::span<std::byte> out) const {
  const Call call(*this, "read_chunk");
  const size_t v = variables_->index_of(variable);
  const TensorSpec spec = variables_->spec(v);
  const int64_t width = size_of(spec.dtype);
  require(begin >= 0 && count >= 0 && begin <= spec.elements() - count,
          "variable '{}': elements [{}, {}) are outside its {} elements", variables_->path(v),
          begin, begin + count, spec.elements());
  require(static_cast<int64_t>(out.size()) == count * width,
          "variable '{}': the buffer must have {} bytes for {} elements, got {}",
          variables_->path(v), count * width, count, out.size());
  variables_->read(v, begin, out);
}

void Session::write_chunk(const Tensor& variable, int64_t begin, std::span<const std::byte> in) {
  const Call call(*this, "write_chunk");
  const size_t v = variables_->index_of(variable);
  check_elements(v, begin, in.size());
  ++changes_;
  variables_->write(v, begin, in);
}

size_t Session::checked_index(size_t variable) const {
  require(variable < by_path_.size(), "variable {}: must be below {}, the number of variables",
          variable, by_path_.size());
  return by_path_[variable];
}

void Session::check_elements(size_t variable, int64_t begin, size_t bytes) const {
  const TensorSpec spec = variables_->spec(variable);
  const int64_t width = size_of(spec.dtype), size = static_cast<int64_t>(bytes);
  require(begin >= 0 && size % width == 0 && begin <= spec.elements() - size / width,
          "variable '{}': {} bytes at element {} are outside its {} elements",
          variables_->path(variable), size, begin, spec.elements());
}

std::vector<std::pair<std::string, TensorSpec>> Session::variables() const {
  std::vector<std::pair<std::string, TensorSpec>> all;
  for (const size_t v : by_path_) all.emplace_back(variables_->path(v), variables_->spec(v));
  return all;
}

void Session::read_variable(size_t variable, int64_t begin, std::span<std::byte> out) const {
  const Call call(*this, "read_variable");
  const size_t v = checked_index(variable);
  check_elements(v, begin, out.size());
  variables_->read(v, begin, out);
}

void Session::write_variable(size_t variable, int64_t begin, std::span<const std::byte> in) {
  const Call call(*this, "write_variable");
  const size_t v = checked_index(variable);
  check_elements(v, begin, in.size());
  ++changes_;
  variables_->write(v, begin, in);
}

void Session::initialize_variables() {
  const Call call(*this, "initialize_variables");
  ++changes_;
  variables_->initialize();
}

void Session::each_variable(const VariableVisitor& visit) const {
  const Call call(*this, "each_variable");
  for (const size_t v : by_path_) visit(variables_->path(v), variables_->value(v));
}

std::optional<ReplicaDifference> Session::find_replica_difference() const {
  const Call call(*this, "find_replica_difference");
  const std::vector<std::vector<std::string>> hashes = variables_->copy_hashes();
  for (const size_t v : by_path_) {
    struct First {  // The first replica with a part.
      int replica;
      const std::string& hash;
    };
    std::map<int64_t, First> parts;  // By the first element of the part.
    int r = 0;
    for (const std::string& hash : hashes[v]) {
      const HostPart part =
          host_part(executable().variables[exe::VariableId(v)].spec, *compiled_->variables[v], r);
      const First& first = parts.try_emplace(part.begin, First{r, hash}).first->second;
      if (hash != first.hash) return ReplicaDifference{variables_->path(v), first.replica, r};
      ++r;
    }
  }
  return std::nullopt;
}

void Session::restore(const std::vector<NamedArray>& values) {
  const Call call(*this, "restore");
  ++changes_;
  restore_variables(*variables_, values);
}

void Session::save(const std::string& path,
                   const std::map<std::string, std::string>& metadata) const {
  const Call call(*this, "save");
  save_variables(*variables_, *agreement_, path, metadata);
}

std::vector<std::string> Session::load(const std::string& path) { return load(path, {}).unused; }

LoadResult Session::load(const std::string& path, const LoadOptions& options) {
  const Call call(*this, "load");
  ++changes_;
  return load_variables(*variables_, *agreement_, path, options);
}

void Session::add_to_report(report::Pipeline stages) {
  if (report_ != nullptr) report_->show(std::move(stages));
}

report::Plan Session::plan() const { return report::Plan(executable()); }
const exe::Executable& Session::executable() const { return executor_->executable(); }
int64_t Session::exchange_bytes() const { return executor_->exchange_bytes(); }
runtime::Counters Session::counters() const { return executor_->counters(); }

std::vector<report::FeedReport> Session::feed_statistics() const {
  const auto waits = [](const runtime::FeedWaits& w) {
    return report::FeedWaits{w.count, static_cast<double>(w.nanoseconds) / 1e9};
  };
  std::vector<report::FeedReport> all;
  for (runtime::FeedCounters& c : executor_->feeds().counters()) {
    all.push_back({.name = std::move(c.name),
                   .input = c.input,
                   .depth = c.depth,
                   .slots = std::max<int64_t>(static_cast<int64_t>(c.occupancy.size()) - 1, 0),
                   .moved = c.moved,
                   .used = c.used,
                   .bytes = c.bytes,
                   .host_seconds = static_cast<double>(c.host_nanoseconds) / 1e9,
                   .run_seconds = static_cast<double>(c.run_nanoseconds) / 1e9,
                   .waits_for_host = waits(c.waits_for_host),
                   .waits_for_program = waits(c.waits_for_program),
                   .waits_at_end = waits(c.waits_at_end),
                   .occupancy = std::move(c.occupancy)});
  }
  return all;
}

const std::deque<runtime::Lane>& Session::lanes() const { return executor_->lanes(); }
std::vector<runtime::StepRuns> Session::moves() const { return executor_->moves(); }
int64_t Session::event_bytes() const {
  int64_t bytes = 0;
  for (const runtime::Lane& lane : lanes()) bytes += lane.ring.bytes();
  return bytes;
}

namespace {

void require_device(const exe::Executable& executable, int device) {
  require(device >= 0 && device < std::ssize(executable.devices),
          "session: device must be in [0, {}), got {}", executable.devices.size(), device);
}

}  // namespace

int64_t Session::planned_bytes(int device) const {
  require_device(executable(), device);
  return exe::planned_bytes(executable(), exe::DeviceId(device), exe::Space::kDevice);
}
int64_t Session::measured_bytes(int device) const {
  require_device(executable(), device);
  return at(measured_, device);
}

// A device of a replica may have memory in its own process and in processes that send to it. Sum
// the bytes of all processes.
void Session::measure() {
  const size_t devices = executable().devices.size();
  std::vector<int64_t> own;  // By replica and device.
  for (int r = 0; r < executable().replicas; ++r) {
    for (const exe::DeviceId d : executable().devices.ids())
      own.push_back(executor_->measured_bytes(r, d, exe::Space::kDevice));
  }
  const std::vector<int64_t> all = agreement_->gathered(own);
  measured_.resize(devices);
  for (size_t i = 0; i < own.size(); ++i) {
    int64_t bytes = 0;
    for (size_t part = i; part < all.size(); part += own.size()) bytes += all[part];
    measured_[i % devices] = std::max(measured_[i % devices], bytes);
  }
}

}  // namespace sluice
