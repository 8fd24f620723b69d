#include "sluice/runtime/executor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/base/flush_to_zero.h"
#include "sluice/base/rng.h"

namespace sluice::runtime {
namespace {

constexpr int64_t kIoQueueLength = 256;
constexpr std::chrono::microseconds kFeedPeriod{200};

// Returns the type of the op from which a step was made.
std::string word_for(const exe::Step& step) {
  if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) return kernel->op;
  if (const auto* collective = std::get_if<exe::Collective>(&step.body)) return collective->op;
  if (std::holds_alternative<exe::Send>(step.body)) return "Send";
  if (std::holds_alternative<exe::Receive>(step.body)) return "Receive";
  if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
    static constexpr const char* kTypes[] = {"HostLoad", "HostStore", "RemoteLoad", "RemoteStore"};
    return at(kTypes, issue->kind);
  }
  return "op";
}

// Allocates whole pages of zeros: transfers that bypass the page cache must begin at a page.
std::unique_ptr<std::byte, FreeMemory> host_memory(int64_t bytes) {
  const auto size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), sys::kFilePage));
  std::unique_ptr<std::byte, FreeMemory> memory(
      static_cast<std::byte*>(std::aligned_alloc(sys::kFilePage, size)));
  if (memory == nullptr)
    fail(ErrorKind::kDoesNotFit, "the system refuses {} bytes of host memory", bytes);
  std::memset(memory.get(), 0, size);
  return memory;
}

bool is_loss_of_a_peer(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kPeerLost;
  } catch (...) {
    return false;
  }
}

}  // namespace

Executor::Executor(exe::Executable executable, std::vector<std::shared_ptr<Device>> devices,
                   ExecutorOptions options)
    : executable_(std::move(executable)),
      devices_(std::move(devices)),
      options_(std::move(options)),
      placement_(
          executable_,
          exe::ProcessMap(executable_.replicas, static_cast<int>(executable_.devices.size()),
                          options_.group == nullptr ? 1 : options_.group->size(), options_.map),
          options_.group == nullptr ? 0 : options_.group->rank()),
      throttle_(options_.remote_bandwidth),
      feeds_(executable_, placement_, options_.feed_deadline, options_.group) {
  require(devices_.size() == executable_.devices.size(),
          "executable: number of devices must be {}, got {}", executable_.devices.size(),
          devices_.size());
  for (const exe::DeviceId d : devices_.ids()) {
    require(devices_[d]->kind() == executable_.devices[d].kind,
            "executable: device {} must be of kind '{}', got '{}'", d, executable_.devices[d].kind,
            devices_[d]->kind());
  }
  check_host_memory();
  const exe::ReplicaRange here = placement_.here();
  const int workers = exe::workers_of_replica(options_.threads, here.count);
  for (const exe::Device& d : executable_.devices) {
    require(d.workers == (d.queued ? 1 : workers),
            "executable: workers a device must be {} as planned, got {}", d.workers, workers);
  }
  Ids<exe::DeviceId, Device*> raw;
  for (const auto& d : devices_) raw.push_back(d.get());
  loaded_ = load(executable_, raw);
  const std::vector<OpenDevices> opened = open_devices();
  check_device_memory();
  communicator_ =
      std::make_unique<Communicator>(executable_, loaded_, opened, placement_, options_.group);
  for (const exe::StreamId s : executable_.streams.ids()) {
    auto& owners = stream_owners_.emplace_back();
    for (int r = 0; r < executable_.replicas; ++r)
      owners.push_back(placement_.process_of_stream(r, s));
  }
  for (int r = 0; r < here.count; ++r) prepare(*at(replicas_, r), here.first + r, workers);
  feeds_.finish_replicas();
  const int teams = options_.threads / workers;
  for (int w = 0; w < options_.threads; ++w) work_.emplace_back();
  // MPI may require that one thread sends and receives all messages.
  work_[0].is_movable = options_.group == nullptr;
  for (const auto& replica : replicas_) {
    for (const auto& s : replica->queued) {
      work_.emplace_back().strands.push_back(s.get());
      work_.back().is_movable = false;
    }
  }
  for (Work& work : work_) work.seen_beats.resize(work_.size());
  for (int r = 0; r < here.count; ++r) {
    auto& strands = at(replicas_, r)->strands;
    for (int w = 0; w < workers; ++w) {
      auto& own = at(work_, r % teams * workers + w).strands;
      for (const auto& s : at(strands, w)) own.push_back(s.get());
    }
  }
  pool_ = std::make_unique<Pool>(static_cast<int>(work_.size()),
                                 may_spin() ? Idle::kSpin : Idle::kSleep);
  for (const auto& replica : replicas_) {
    for (const auto& io : io_threads_) replica->state.io_issued.push_back(&io->issued);
  }
  for (const auto& io : io_threads_) io->thread = std::thread([this, &t = *io] { serve_io(t); });
  // Wait for the first pass of every thread. A later first pass could disturb a run, which resets
  // the queues or serves them itself.
  for (const auto& io : io_threads_) io->await_idle();
}

// Opens the devices that this process runs, by replica.
std::vector<OpenDevices> Executor::open_devices() {
  std::vector<OpenDevices> opened;
  for (int r = 0; r < placement_.here().count; ++r) {
    Replica& replica = *replicas_.emplace_back(std::make_unique<Replica>());
    auto& all = opened.emplace_back();
    for (const exe::DeviceId d : devices_.ids()) {
      const bool here = placement_.has(placement_.here().first + r, d);
      all.push_back(replica.devices.emplace_back(here ? devices_[d]->open() : nullptr).get());
    }
  }
  return opened;
}

void Executor::allocate_arenas(Replica& replica, int number) {
  for (const exe::ArenaId a : executable_.arenas.ids()) {
    const exe::Arena& arena = executable_.arenas[a];
    const int64_t bytes = placement_.bytes_of(number, a);
    DeviceAddress device;
    std::byte* host = nullptr;
    if (arena.space == exe::Space::kDevice) {
      const exe::DeviceId owner = owner_of(number, a);
      if (owner.valid()) device = replica.devices[owner]->allocate(bytes);
    } else if (arena.space != exe::Space::kFile) {
      host = replica.host_memory.emplace_back(host_memory(bytes)).get();
    }
    replica.allocated.push_back(bytes);
    replica.state.arenas.push_back(device);
    replica.state.host_arenas.push_back(host);
  }
}

void Executor::prepare(Replica& replica, int number, int workers) {
  RunState& state = replica.state;
  allocate_arenas(replica, number);
  state.remote = std::make_unique<RemoteStore>(executable_, placement_, number, state.host_arenas,
                                               options_.folder, throttle_);
  replica.channels = Ids<exe::ChannelId, ChannelState>(executable_.channels.size());
  for (const exe::ChannelId c : executable_.channels.ids())
    replica.channels[c].capacity = executable_.channels[c].capacity;
  communicator_->connect(executable_, number, replica.channels);
  state.feed_ports = feeds_.add_replica(number, state.host_arenas);
  state.executable = &executable_;
  state.loaded = &loaded_;
  state.channels = &replica.channels;
  state.communicator = communicator_.get();
  state.stop = &stop_;
  state.replica = number;
  for (const exe::DeviceId d : executable_.devices.ids()) {
    const exe::Device& device = executable_.devices[d];
    state.arrived.push_back(std::make_unique<std::atomic<int64_t>>(0));
    auto& queues = state.io.emplace_back();
    if (!placement_.has(number, d)) continue;
    for (size_t q = 0; q < std::max<size_t>(device.queues.size(), 1); ++q) {
      queues.push_back(q == 0 ? nullptr : std::make_unique<IoQueue>(kIoQueueLength, stop_));
      if (q == 0) continue;
      queues_.push_back(queues.back().get());
      if (!device.queued) queues.back()->record(add_lane(number, d, q, 0));
      if (io_threads_.size() < q) io_threads_.push_back(std::make_unique<IoThread>());
      io_threads_[q - 1]->queues.push_back(queues.back().get());
    }
  }
  for (int w = 0; w < workers; ++w) {
    auto& own = replica.strands.emplace_back();
    for (const exe::DeviceId d : executable_.devices.ids()) {
      const bool queued = executable_.devices[d].queued;
      if ((queued && w > 0) || !placement_.has(number, d)) continue;
      auto& strands = queued ? replica.queued : own;
      strands.push_back(replica.devices[d]->strand(state, d, w));
      strands.back()->record(add_lane(number, d, 0, w));
    }
  }
}

EventRing* Executor::add_lane(int replica, exe::DeviceId device, size_t queue, int worker) {
  if (options_.events == 0) return nullptr;
  lanes_.push_back(
      {replica, device, static_cast<int32_t>(queue), worker, EventRing(options_.events)});
  return &lanes_.back().ring;
}

Executor::~Executor() {
  feeds_.close();  // A source may still call stop().
  pool_.reset();   // A worker may still be leaving the last run.
  io_quit_ = true;
  for (const auto& io : io_threads_) {
    if (!io->thread.joinable()) continue;
    io->issued.fetch_add(1);
    io->issued.notify_all();
    io->thread.join();
  }
  // The queues of a replica may copy from devices of another one, so all of them end first.
  for (const auto& replica : replicas_) {
    replica->strands.clear();
    replica->queued.clear();
  }
}

// From here on, stop() has an effect.
void Executor::begin_run() {
  if (lost_) throw Error(*lost_);
  const std::lock_guard lock(state_lock_);
  running_ = true;
  requested_ = false;
  error_ = nullptr;
  stop_ = false;
  throttle_.reset();
}

void Executor::prepare(const exe::Program& program, HostStreams& streams, bool has_io_threads) {
  feeds_.begin(program);
  communicator_->reset();
  for (Lane& lane : lanes_) lane.ring.clear();
  for (IoQueue* q : queues_) q->reset();
  for (const auto& replica : replicas_) {
    replica->state.streams = &streams;
    replica->state.has_io_threads = has_io_threads;
    for (auto& a : replica->state.arrived) a->store(0);
    for (ChannelState& c : replica->channels) {
      c.sent = 0;
      c.received = 0;
    }
  }
  for (const Work& work : work_) {
    for (Strand* s : work.strands) s->start(program);
  }
}

// Keeps the first error. But the loss of a peer may be the consequence of an error that appears
// later, unless the device has missed its deadline.
void Executor::fail_run(std::exception_ptr error) {
  const std::lock_guard lock(state_lock_);
  if (error_ == nullptr || (!lost_ && is_loss_of_a_peer(error_) && !is_loss_of_a_peer(error)))
    error_ = std::move(error);
  stop_strands();
}

bool Executor::stop() {
  const std::lock_guard lock(state_lock_);
  if (!running_) return false;
  requested_ = true;
  stop_strands();
  return true;
}

// Requires state_lock_.
void Executor::stop_strands() {
  stop_ = true;
  throttle_.cancel();
  for (IoQueue* q : queues_) q->rouse();
  feeds_.events().notify();
}

std::exception_ptr Executor::described(Error& e, const exe::Step* step) {
  if (step != nullptr) {
    e.note(step->origin < 0 ? fmt::format("running {}: {}", word_for(*step), step->where)
                            : fmt::format("running {}.{} made at {}", word_for(*step), step->origin,
                                          step->where));
  }
  return std::current_exception();
}

bool Executor::advance_or_fail(Strand& strand) {
  try {
    return strand.advance();
  } catch (Error& e) {
    fail_run(described(e, strand.current()));
  } catch (...) {
    fail_run(std::current_exception());
  }
  return true;
}

bool Executor::advance_or_fail(IoQueue& queue) {
  if (stop_.load()) return false;
  try {
    return queue.advance();
  } catch (Error& e) {
    fail_run(described(e, queue.current()));
  } catch (...) {
    fail_run(std::current_exception());
  }
  return false;
}

// A sink may fail while all strands wait for others than its feed.
void Executor::check_sinks_or_fail() {
  try {
    feeds_.check_sinks();
  } catch (...) {
    fail_run(std::current_exception());
  }
}

bool Executor::poll_or_fail() {
  try {
    return communicator_->poll();
  } catch (...) {
    fail_run(std::current_exception());
  }
  return true;
}

void Executor::IoThread::await_idle() const {
  for (uint32_t seen; (seen = idle.load()) != issued.load();) idle.wait(seen);
}

void Executor::serve_io(IoThread& io) {
  for (;;) {
    const uint32_t seen = io.issued.load();
    if (io_quit_) return;
    bool progress = false;
    for (IoQueue* q : io.queues) progress = advance_or_fail(*q) || progress;
    if (progress) continue;
    io.idle.store(seen);
    io.idle.notify_all();
    io.issued.wait(seen);
  }
}

// Runs a program. `drive` runs the strands until they have finished or the run is stopped.
template <typename F>
void Executor::run_with(const exe::Program& program, HostStreams& streams, bool has_io_threads,
                        F&& drive) {
  begin_run();
  const auto guarded = [&](auto&& f) {
    try {
      f();
    } catch (...) {
      fail_run(std::current_exception());
    }
  };
  guarded([&] {
    prepare(program, streams, has_io_threads);
    drive();
    feeds_.flush(stop_);
  });
  settle();
  feeds_.end();
  guarded([&] { share_outputs(program, streams); });
  end_run();
}

void Executor::run(const exe::Program& program, HostStreams& streams) {
  run_with(program, streams, true, [&] {
    open_works();
    pool_->lead([](void* self, int worker) { static_cast<Executor*>(self)->drive(worker); }, this);
    close_works();
  });
}

// Afterwards no thread uses the I/O queues or the memory of the streams, and after a stop the
// queues of devices have run all commands.
void Executor::settle() {
  for (const auto& io : io_threads_) io->await_idle();
  for (const Work& work : work_) {
    for (Strand* s : work.strands) s->settle();
  }
  if (!stop_.load()) return;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                             std::chrono::duration<double>(options_.stop_deadline));
  for (const auto& replica : replicas_) {
    for (const auto& strand : replica->queued) drain(*strand, replica->state.replica, end);
  }
}

// Waits for the commands of a strand. A device whose queue throws runs none any more.
void Executor::drain(Strand& strand, int replica, std::chrono::steady_clock::time_point end) {
  try {
    while (!strand.drained()) {
      if (std::chrono::steady_clock::now() >= end) return lose(strand, replica);
      std::this_thread::yield();
    }
  } catch (Error& e) {
    fail_run(described(e, strand.current()));
  }
}

// Refuses all later runs. The error of this run becomes a note.
void Executor::lose(const Strand& strand, int replica) {
  if (lost_) return;
  const std::string where =
      executable_.replicas > 1 ? fmt::format(" of replica {}", replica) : std::string();
  lost_ = Error(ErrorKind::kPeerLost,
                fmt::format("device {}{}: its commands have not ended within {} s after the stop",
                            strand.device(), where, options_.stop_deadline));
  const std::lock_guard lock(state_lock_);
  try {
    if (error_ != nullptr) std::rethrow_exception(error_);
  } catch (const std::exception& e) {
    lost_->note(fmt::format("ending the run after this error: {}", e.what()));
  }
  error_ = std::make_exception_ptr(*lost_);
}

// A process holds the outputs of its own devices. Gather all outputs into every process.
void Executor::share_outputs(const exe::Program& program, HostStreams& streams) {
  if (options_.agreement == nullptr || stop_.load()) return;
  for (const exe::StreamCount& s : program.streams) {
    const exe::StreamPort& port = executable_.streams[s.stream];
    if (port.input || s.entries == 0 || feeds_.has_stream(s.stream)) continue;
    const int64_t bytes = s.entries * executable_.replicas * port.spec.bytes();
    options_.agreement->share({streams.entry(s.stream, 0, 0), static_cast<size_t>(bytes)},
                              stream_owners_[s.stream], s.entries, &stop_);
  }
}

// From here on, stop() has no effect. An error that ends this run also ends the run in all other
// processes.
void Executor::end_run() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(state_lock_);
    running_ = false;
    if (requested_ && error_ == nullptr) error_ = std::make_exception_ptr(stop_error());
    error = error_;
  }
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    communicator_->fail(e);
    throw;
  } catch (const std::exception& e) {
    communicator_->fail(Error(ErrorKind::kInternal, e.what()));
    throw;
  }
}

void Executor::run_interleaved(const exe::Program& program, HostStreams& streams, uint64_t seed) {
  std::vector<Strand*> strands;
  for (const Work& work : work_)
    strands.insert(strands.end(), work.strands.begin(), work.strands.end());
  run_with(program, streams, false, [&] { drive_interleaved(program, strands, seed); });
}

void Executor::drive_interleaved(const exe::Program& program, const std::vector<Strand*>& strands,
                                 uint64_t seed) {
  const FlushToZero flush;
  const Seed key{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  const auto over = [&] {
    return communicator_->is_over() && std::all_of(strands.begin(), strands.end(),
                                                   [](const Strand* s) { return s->finished(); });
  };
  int stuck = 0;
  const int patience = 64 * static_cast<int>(strands.size() + queues_.size());
  for (uint64_t draw = 0; !over() && !stop_.load(); ++draw) {
    const uint32_t feed_events = feeds_.events().count();
    const size_t pick = random_bits(key, draw) % (strands.size() + queues_.size());
    check_sinks_or_fail();
    const bool polled = poll_or_fail();
    const bool progress = pick < strands.size()
                              ? (!strands[pick]->finished() && advance_or_fail(*strands[pick]))
                              : advance_or_fail(*queues_[pick - strands.size()]);
    const bool waits = std::any_of(strands.begin(), strands.end(),
                                   [](const Strand* s) { return s->waits_for_device(); });
    if (!progress && feeds_.waiting()) feeds_.events().await(feed_events, kFeedPeriod);
    stuck = progress || polled || waits || feeds_.waiting() ? 0 : stuck + 1;
    if (stuck > patience && options_.group == nullptr)
      fail(ErrorKind::kInternal, "program {}: all strands are stuck", program.name);
  }
}

int64_t Executor::measured_bytes(int replica, exe::DeviceId device, exe::Space space) const {
  if (!placement_.here().contains(replica)) return 0;
  int64_t bytes = 0;
  for (const exe::ArenaId a : executable_.arenas.ids()) {
    const exe::Arena& arena = executable_.arenas[a];
    if (arena.space == space && arena.device == device)
      bytes += this->replica(replica).allocated[a];
  }
  return bytes;
}

Counters Executor::counters() const {
  Counters sum;
  for (const Work& work : work_) {
    for (const Strand* s : work.strands) sum += s->counters();
  }
  sum.moved = moved_.load();
  return sum;
}

std::vector<StepRuns> Executor::moves() const {
  std::vector<StepRuns> all;
  for (const std::unique_ptr<Replica>& replica : replicas_) {
    std::vector<int64_t> runs(loaded_.moves.size());
    const auto add = [&](const std::unique_ptr<Strand>& strand) {
      for (size_t i = 0; i < runs.size(); ++i) runs[i] += strand->moves()[i];
    };
    for (const auto& own : replica->strands) std::for_each(own.begin(), own.end(), add);
    std::for_each(replica->queued.begin(), replica->queued.end(), add);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i] > 0) all.push_back({replica->state.replica, loaded_.moves[i], runs[i]});
    }
  }
  return all;
}

}  // namespace sluice::runtime
