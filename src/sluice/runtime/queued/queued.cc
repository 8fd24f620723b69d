#include <algorithm>
#include <cstring>

#include "sluice/runtime/queued/collective.h"
#include "sluice/runtime/queued/io.h"
#include "sluice/runtime/queued/launches.h"
#include "sluice/runtime/queued/messages.h"
#include "sluice/runtime/walk.h"

namespace sluice::runtime {
namespace {

/// Pins the staging memory of a device, and returns that of each of its queues.
std::vector<std::span<std::byte>> pinned_staging(const RunState& run, exe::DeviceId device,
                                                 QueuedDevice& open) {
  std::vector<std::span<std::byte>> staging;
  for (const exe::ArenaId a : run.executable->arenas.ids()) {
    const exe::Arena& arena = run.executable->arenas[a];
    if (arena.device != device || arena.kind != exe::ArenaKind::kStaging) continue;
    staging.emplace_back(run.host_arenas[a], static_cast<size_t>(arena.bytes));
    if (arena.bytes > 0) open.pin(staging.back());
  }
  const size_t queues = run.executable->devices[device].queues.size();
  require(staging.size() == queues,
          "executable: device {} must have staging memory for {} queues, got {}", device, queues,
          staging.size());
  return staging;
}

/// Enqueues the steps of a device with queues: the StepRunner of a Walk.
class Queued {
 public:
  using Address = DeviceAddress;

  Queued(RunState& run, exe::DeviceId device, QueuedDevice& open)
      : Queued(run, device, open, pinned_staging(run, device, open)) {}
  Queued(RunState& run, exe::DeviceId device, QueuedDevice& open,
         const std::vector<std::span<std::byte>>& staging)
      : run_(run),
        launches_(commands_, run.loaded->needs, run.workspace(device)),
        commands_(open.queue()),
        staging_(run, commands_, staging.front()),
        messages_(run, device, open, commands_),
        collective_(run, device, open, commands_, run.workspace(device)) {
    for (size_t q = 1; q < staging.size(); ++q)
      io_.push_back(std::make_unique<QueuedIo>(run, commands_, open.queue(), staging[q]));
  }

  static DeviceAddress address(DeviceAddress at) { return at; }

  void start() {
    for (const auto& io : io_) io->start();
    commands_.restart();
    launches_.restart();
    staging_.restart();
    messages_.restart();
    collective_.restart();
    failed_io_ = nullptr;
    reading_ = ending_ = 0;
  }

  static bool leads() { return true; }
  static bool barrier() { return true; }

  TaskRange share_of(const LoadedKernel& kernel) {
    counters.bytes += kernel.operand_bytes;
    counters.flops += kernel.flops;
    return {0, kernel.tasks};
  }

  void run(const LoadedKernel& kernel, const DeviceAddress* operands, const int64_t* scalars,
           TaskRange share) {
    publish_messages();
    launches_.add(kernel, operands, scalars);
    counters.kernels += share.end - share.begin;
  }

  std::optional<uint32_t> read(DeviceAddress at, int bytes, const exe::Step* step) {
    begin_host_step();
    if (reading_ == 0) {
      commands_.add(step, [&](Queue& q) { q.download(staging_.word(), at, bytes); });
      reading_ = commands_.mark();
    }
    if (!passed(reading_)) return {};
    reading_ = 0;
    uint32_t value = 0;
    std::memcpy(&value, staging_.word(), static_cast<size_t>(bytes));
    return value;
  }

  int64_t issue(const exe::Issue& issue, DeviceAddress memory, int64_t entry, const exe::Step* step,
                bool /*awaited_next*/) {
    begin_host_step();
    const QueuedTransfer transfer{&issue, memory, entry, step};
    if (issue.queue > 0) return io(issue.queue).issue(transfer, commands_.mark());
    FeedPort* const port = issue.is_stream() ? run_.port(issue.stream()) : nullptr;
    if (port != nullptr && !port->ready()) return kNotYet;
    const bool ended = staging_.advance(transfer);
    waits_ = staging_.waits();
    // The slot is free: the entry is in the staging memory, or has come from there.
    if (ended && port != nullptr) port->done();
    return ended ? kEnded : kNotYet;
  }

  bool wait(int32_t queue, int64_t number) {
    begin_host_step();
    failed_io_ = &io(queue);
    const bool ended = failed_io_->await(number);
    failed_io_ = nullptr;
    waits_ = !ended;
    return ended;
  }

  static bool park() { return false; }
  bool waits_for_device() const { return waits_; }
  const exe::Step* blamed() const {
    return failed_io_ != nullptr ? failed_io_->blamed() : commands_.blamed();
  }
  void settle() {
    for (const auto& io : io_) io->stop();
  }
  bool drained() {
    return commands_.drained() &&
           std::all_of(io_.begin(), io_.end(), [](const auto& io) { return io->drained(); });
  }
  bool has_room() {
    waits_ = !commands_.has_room();
    return !waits_;
  }

  bool send(const exe::Send& send, DeviceAddress operand, int64_t message, const exe::Step* step) {
    begin_host_step();
    return messages_.send(send, operand, message, step);
  }
  bool receive(const exe::Receive& receive, DeviceAddress operand, int64_t message,
               const exe::Step* step) {
    begin_host_step();
    return messages_.receive(receive, operand, message, step);
  }

  bool collective(const exe::Collective& collective, const BoundCollective& bound,
                  DeviceAddress input, DeviceAddress output, int64_t number,
                  const exe::Step* step) {
    begin_host_step();
    if (!collective_.advance(bound, input, output, number, step)) return false;
    for (const exe::Operand& o : collective.operands) counters.bytes += o.bytes;
    return true;
  }

  bool finish() {
    begin_host_step();
    if (ending_ == 0) ending_ = commands_.mark();
    if (!passed(ending_)) return false;
    publish_messages();
    commands_.check();
    return true;
  }

  Counters counters;

 private:
  /// Comes before a step for which the host does more than launch.
  void begin_host_step() {
    launches_.flush();
    publish_messages();
  }
  void publish_messages() { waits_ = !messages_.publish(); }
  QueuedIo& io(int32_t queue) { return *at(io_, queue - 1); }
  bool passed(int64_t mark) {
    waits_ = !commands_.passed(mark);
    return !waits_;
  }

  RunState& run_;
  Launches launches_;  ///< Outlives the queue, which may hold launches of its recordings.
  Commands commands_;  ///< The compute queue.
  Staging staging_;
  std::vector<std::unique_ptr<QueuedIo>> io_;  ///< Indexed by queue number - 1.
  QueuedIo* failed_io_ = nullptr;              ///< Io queue whose error await() throws.
  QueuedMessages messages_;
  QueuedCollective collective_;
  int64_t reading_ = 0;  ///< Mark after the copy of read(); 0: none.
  int64_t ending_ = 0;   ///< Mark after the last command of a run; 0: none.
  bool waits_ = false;   ///< The walk waits for commands of the device.
};

}  // namespace

std::unique_ptr<Strand> QueuedDevice::strand(RunState& run, exe::DeviceId device, int) {
  return std::make_unique<Walk<Queued>>(run, device, *this);
}

}  // namespace sluice::runtime
