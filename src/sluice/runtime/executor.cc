#include "sluice/runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "sluice/base/flush_to_zero.h"
#include "sluice/base/rng.h"

namespace sluice::runtime {
namespace {

constexpr int kSpins = 4000;  // About 50 µs: longer than a barrier, shorter than a wake-up costs.
constexpr size_t kIoQueueLength = 256;

// The op that a step comes from, as its type.
std::string word_for(const exe::Step& step) {
  if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) return kernel->op;
  if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
    static constexpr const char* kTypes[] = {"HostLoad", "HostStore", "RemoteLoad", "RemoteStore"};
    return kTypes[static_cast<size_t>(issue->kind)];
  }
  return "op";
}

std::unique_ptr<std::byte[]> host_memory(int64_t bytes) {
  try {
    return std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::kDoesNotFit, "the system refuses {} bytes of host memory", bytes);
  }
}

}  // namespace

Executor::Executor(exe::Executable executable, std::vector<std::shared_ptr<Device>> devices,
                   ExecutorOptions options)
    : executable_(std::move(executable)),
      devices_(std::move(devices)),
      options_(options),
      channels_(executable_.channels.size()) {
  require(devices_.size() == executable_.devices.size(),
          "executable: it needs {} devices, {} are given", executable_.devices.size(),
          devices_.size());
  for (const exe::Device& device : executable_.devices) {
    require(device.workers == options_.threads,
            "executable: planned for {} workers a device, started with {}", device.workers,
            options_.threads);
  }
  std::vector<Device*> raw;
  for (const auto& d : devices_) raw.push_back(d.get());
  loaded_ = load(executable_, raw);
  for (const exe::Arena& arena : executable_.arenas) {
    Region region;
    region.bytes = arena.bytes;
    std::byte* base = nullptr;
    std::unique_ptr<TierFile> file;
    if (arena.space == exe::Space::kDevice) {
      region.device = devices_[static_cast<size_t>(arena.device)]->allocate(arena.bytes);
      base = region.device->data();
    } else if (arena.space == exe::Space::kFile) {
      require(!options_.folder.empty(), "executable: it has a file tier, no folder is given");
      file = std::make_unique<TierFile>(
          TierFile{sys::scratch_file(options_.folder, arena.bytes), options_.folder});
    } else {
      region.host = host_memory(arena.bytes);
      base = region.host.get();
    }
    regions_.push_back(std::move(region));
    state_.arenas.push_back(base);
    state_.files.push_back(std::move(file));
  }
  for (size_t c = 0; c < channels_.size(); ++c)
    channels_[c].capacity = executable_.channels[c].capacity;
  state_.executable = &executable_;
  state_.loaded = &loaded_;
  state_.channels = &channels_;
  state_.workers = options_.threads;
  bool has_io = false;
  for (const exe::Device& device : executable_.devices) {
    state_.arrived.push_back(std::make_unique<std::atomic<int64_t>>(0));
    auto& queues = state_.io.emplace_back();
    for (size_t q = 0; q < std::max<size_t>(device.queues.size(), 1); ++q) {
      queues.push_back(q == 0 ? nullptr : std::make_unique<IoQueue>(kIoQueueLength));
      has_io = has_io || q > 0;
    }
  }
  for (int w = 0; w < options_.threads; ++w) {
    auto& own = strands_.emplace_back();
    for (size_t d = 0; d < devices_.size(); ++d) own.emplace_back(state_, static_cast<int>(d), w);
  }
  pool_ = std::make_unique<Pool>(
      options_.threads, options_.usable_cores >= options_.threads ? Idle::kSpin : Idle::kSleep);
  if (has_io) io_thread_ = std::thread([this] { serve_io(); });
}

Executor::~Executor() {
  if (!io_thread_.joinable()) return;
  io_quit_ = true;
  io_issued_.fetch_add(1);
  io_issued_.notify_all();
  io_thread_.join();
}

Transfer Executor::transfer_at(int32_t arena, int64_t offset) const {
  const auto a = static_cast<size_t>(arena);
  Transfer t;
  t.file = state_.files[a].get();
  if (t.file == nullptr) t.other = state_.arenas[a] + offset;
  t.offset = offset;
  return t;
}

void Executor::read(int32_t arena, int64_t offset, std::span<std::byte> out) const {
  Transfer t = transfer_at(arena, offset);
  t.memory = out.data();
  t.bytes = static_cast<int64_t>(out.size());
  t.run();
}

void Executor::write(int32_t arena, int64_t offset, std::span<const std::byte> in) {
  Transfer t = transfer_at(arena, offset);
  t.memory = const_cast<std::byte*>(in.data());
  t.bytes = static_cast<int64_t>(in.size());
  t.in = false;
  t.run();
}

void Executor::prepare(const exe::Program& program, HostStreams& streams) {
  state_.streams = &streams;
  state_.stop = false;
  error_ = nullptr;
  for (auto& a : state_.arrived) a->store(0);
  for (ChannelState& c : channels_) {
    c.sent = 0;
    c.received = 0;
  }
  for (auto& queues : state_.io) {
    for (auto& q : queues) {
      if (q != nullptr) q->reset();
    }
  }
  for (auto& own : strands_) {
    for (Strand& s : own) s.start(program);
  }
}

void Executor::fail_run(std::exception_ptr error) {
  const std::lock_guard lock(error_lock_);
  if (error_ == nullptr) error_ = std::move(error);
  state_.stop = true;
  for (auto& queues : state_.io) {
    for (auto& q : queues) {
      if (q != nullptr) q->rouse();
    }
  }
}

std::exception_ptr Executor::described(Error& e, const exe::Step* step) {
  if (step != nullptr)
    e.note(fmt::format("running {}.{} made at {}", word_for(*step), step->origin, step->where));
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
  if (state_.stop.load()) return false;
  try {
    return queue.advance();
  } catch (Error& e) {
    fail_run(described(e, queue.current()));
  } catch (...) {
    fail_run(std::current_exception());
  }
  return false;
}

void Executor::drive(int worker) {
  std::vector<Strand>& own = strands_[static_cast<size_t>(worker)];
  const FlushToZero flush;
  const bool may_spin = options_.usable_cores >= options_.threads;
  int idle = 0;
  for (;;) {
    bool progress = false;
    bool finished = true;
    for (Strand& s : own) {
      if (s.finished()) continue;
      progress = advance_or_fail(s) || progress;
      finished = finished && s.finished();
    }
    if (finished || state_.stop.load(std::memory_order_relaxed)) break;
    if (progress) {
      idle = 0;
    } else if (may_spin && ++idle < kSpins) {
      spin_pause();
    } else if (!park(own)) {
      std::this_thread::yield();
    }
  }
}

// What waits for files must not take a core from those who work.
bool Executor::park(const std::vector<Strand>& own) {
  const auto waits =
      std::find_if(own.begin(), own.end(), [](const Strand& s) { return !s.finished(); });
  return waits != own.end() && waits->park();
}

void Executor::serve_io() {
  for (;;) {
    const uint32_t seen = io_issued_.load();
    if (io_quit_) return;
    bool progress = false;
    for (auto& queues : state_.io) {
      for (auto& q : queues) progress = (q != nullptr && advance_or_fail(*q)) || progress;
    }
    if (progress) continue;
    io_idle_.store(seen);
    io_idle_.notify_all();
    io_issued_.wait(seen);
  }
}

void Executor::run(const exe::Program& program, HostStreams& streams) {
  prepare(program, streams);
  state_.io_issued = &io_issued_;
  pool_->run([](void* self, int worker) { static_cast<Executor*>(self)->drive(worker); }, this);
  // The io thread has left the queues; after an error, also the bytes of the streams.
  for (uint32_t idle; (idle = io_idle_.load()) != io_issued_.load();) io_idle_.wait(idle);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void Executor::run_interleaved(const exe::Program& program, HostStreams& streams, uint64_t seed) {
  prepare(program, streams);
  state_.io_issued = nullptr;
  std::vector<Strand*> strands;
  std::vector<IoQueue*> queues;
  for (auto& own : strands_) {
    for (Strand& s : own) strands.push_back(&s);
  }
  for (auto& device : state_.io) {
    for (auto& q : device) {
      if (q != nullptr) queues.push_back(q.get());
    }
  }
  const FlushToZero flush;
  const Seed key{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  const auto finished = [&] {
    for (const Strand* s : strands) {
      if (!s->finished()) return false;
    }
    return true;
  };
  int stuck = 0;
  const int patience = 64 * static_cast<int>(strands.size() + queues.size());
  for (uint64_t turn = 0; !finished() && error_ == nullptr; ++turn) {
    const size_t pick = random_bits(key, turn) % (strands.size() + queues.size());
    const bool progress = pick < strands.size()
                              ? (!strands[pick]->finished() && advance_or_fail(*strands[pick]))
                              : advance_or_fail(*queues[pick - strands.size()]);
    stuck = progress ? 0 : stuck + 1;
    if (stuck > patience) {
      fail(ErrorKind::kInternal, "program {}: all strands are stuck", program.name);
    }
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

int64_t Executor::measured_bytes(int32_t device, exe::Space space) const {
  int64_t bytes = 0;
  for (size_t a = 0; a < regions_.size(); ++a) {
    const exe::Arena& arena = executable_.arenas[a];
    if (arena.space == space && (arena.device == device || space != exe::Space::kDevice))
      bytes += regions_[a].bytes;
  }
  return bytes;
}

Counters Executor::counters() const {
  Counters sum;
  for (const auto& own : strands_) {
    for (const Strand& s : own) sum += s.counters();
  }
  return sum;
}

}  // namespace sluice::runtime
