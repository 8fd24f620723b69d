#include <algorithm>
#include <cstring>

#include "sluice/runtime/queued/collective.h"
#include "sluice/runtime/queued/io.h"
#include "sluice/runtime/walk.h"

namespace sluice::runtime {
namespace {

/// Pins the staging memory of a device, and returns that of each of its queues.
std::vector<std::span<std::byte>> pinned_staging(const RunState& run, int device,
                                                 QueuedDevice& open) {
  std::vector<std::span<std::byte>> staging;
  for (size_t a = 0; a < run.executable->arenas.size(); ++a) {
    const exe::Arena& arena = run.executable->arenas[a];
    if (arena.device != device || arena.kind != exe::ArenaKind::kStaging) continue;
    staging.emplace_back(run.host_arenas[a], static_cast<size_t>(arena.bytes));
    if (arena.bytes > 0) open.pin(staging.back());
  }
  const size_t queues = run.executable->devices[static_cast<size_t>(device)].queues.size();
  require(staging.size() == queues,
          "executable: device {} must have staging memory for {} queues, got {}", device, queues,
          staging.size());
  return staging;
}

/// Enqueues the steps of a device with queues: the Kind of a Walk.
class Queued {
 public:
  using Address = DeviceAddress;

  Queued(RunState& run, int device, QueuedDevice& open)
      : Queued(run, device, open, pinned_staging(run, device, open)) {}
  Queued(RunState& run, int device, QueuedDevice& open,
         const std::vector<std::span<std::byte>>& staging)
      : run_(run),
        commands_(open.queue()),
        staging_(run, commands_, staging.front()),
        workspace_(run.workspace(device)),
        collective_(run, device, open, commands_, workspace_) {
    const exe::Executable& e = *run.executable;
    size_t messages = 0;
    for (const exe::Channel& c : e.channels) {
      if (c.from != device && c.to != device) continue;
      const auto a = static_cast<size_t>(c.arena);
      require(run.host_arenas[a] != nullptr,
              "executable: channel {} must be in pinned memory, as device {} has queues, got "
              "arena {}",
              c.name, device, e.arenas[a].name);
      open.pin({run.host_arenas[a], static_cast<size_t>(e.arenas[a].bytes)});
      messages += static_cast<size_t>(c.capacity);
    }
    messages_.resize(messages + 1);
    operands_.resize(run.loaded->needs.operands);
    scalars_.resize(run.loaded->needs.scalars);
    for (size_t q = 1; q < staging.size(); ++q)
      io_.push_back(std::make_unique<QueuedIo>(run, commands_, open.queue(), staging[q]));
  }

  static DeviceAddress address(DeviceAddress at) { return at; }

  void start() {
    // A run that was stopped may have left commands.
    for (const auto& io : io_) io->start();
    commands_.restart();
    staging_.restart();
    collective_.restart();
    failed_io_ = nullptr;
    reading_ = ending_ = 0;
    first_message_ = end_message_ = 0;
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
    std::copy_n(operands, kernel.arguments, operands_.begin());
    std::copy_n(scalars, kernel.scalars->size(), scalars_.begin());
    commands_.add(kernel.step, [&](Queue& q) {
      q.launch({kernel.state,
                {operands_.data(), kernel.arguments},
                workspace_,
                {scalars_.data(), kernel.scalars->size()}});
    });
    counters.kernels += share.end - share.begin;
  }

  std::optional<uint32_t> read(DeviceAddress at, int bytes, const exe::Step* step) {
    publish_messages();
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
    publish_messages();
    const QueuedTransfer transfer{&issue, memory, entry, step};
    if (issue.queue > 0) return io(issue.queue).issue(transfer, commands_.mark());
    const bool ended = staging_.advance(transfer);
    waits_ = staging_.waits();
    return ended ? kEnded : kNotYet;
  }

  bool wait(int32_t queue, int64_t number) {
    publish_messages();
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

  bool send(const exe::Send& send, DeviceAddress operand, int64_t message, const exe::Step* step) {
    ChannelState& state = (*run_.channels)[static_cast<size_t>(send.channel)];
    publish_messages();
    if (!state.can_send(message)) return false;
    commands_.add(step, [&](Queue& q) {
      q.download(slot_of(send.channel, message), operand, send.operand.bytes);
    });
    publish_later(state.sent, message + 1);
    return true;
  }

  bool receive(const exe::Receive& receive, DeviceAddress operand, int64_t message,
               const exe::Step* step) {
    ChannelState& state = (*run_.channels)[static_cast<size_t>(receive.channel)];
    publish_messages();
    if (!state.can_receive(message)) return false;
    commands_.add(step, [&](Queue& q) {
      q.upload(operand, slot_of(receive.channel, message), receive.operand.bytes);
    });
    publish_later(state.received, message + 1);
    return true;
  }

  bool collective(const exe::Collective& collective, const BoundCollective& bound,
                  DeviceAddress input, DeviceAddress output, int64_t number,
                  const exe::Step* step) {
    waits_ = false;
    publish_messages();
    if (!collective_.advance(bound, input, output, number, step)) return false;
    for (const exe::Operand& o : collective.operands) counters.bytes += o.bytes;
    return true;
  }

  bool finish() {
    publish_messages();
    if (ending_ == 0) ending_ = commands_.mark();
    if (!passed(ending_)) return false;
    publish_messages();
    commands_.check();
    return true;
  }

  Counters counters;

 private:
  /// A message whose copy may not have ended. Then its channel gets the count.
  struct Message {
    int64_t mark = 0;
    std::atomic<int64_t>* counter = nullptr;
    int64_t count = 0;
  };

  std::byte* slot_of(int32_t number, int64_t message) const {
    const exe::Channel& channel = run_.executable->channels[static_cast<size_t>(number)];
    return run_.host_arenas[static_cast<size_t>(channel.arena)] + channel.slot(message);
  }
  void publish_later(std::atomic<int64_t>& counter, int64_t count) {
    messages_[end_message_++ % messages_.size()] = {commands_.mark(), &counter, count};
  }
  void publish_messages() {
    for (; first_message_ < end_message_; ++first_message_) {
      const Message& m = messages_[first_message_ % messages_.size()];
      if (!passed(m.mark)) return;
      m.counter->store(m.count, std::memory_order_release);
    }
  }

  QueuedIo& io(int32_t queue) { return *io_[static_cast<size_t>(queue) - 1]; }
  bool passed(int64_t mark) {
    waits_ = !commands_.passed(mark);
    return !waits_;
  }

  RunState& run_;
  Commands commands_;  ///< The compute queue.
  Staging staging_;
  std::vector<std::unique_ptr<QueuedIo>> io_;  ///< By queue number - 1.
  QueuedIo* failed_io_ = nullptr;              ///< Io queue whose error await() throws.
  DeviceAddress workspace_;
  QueuedCollective collective_;
  std::vector<DeviceAddress> operands_;  ///< Operands of a launch.
  std::vector<int64_t> scalars_;
  int64_t reading_ = 0;            ///< Mark behind the copy of read(); 0: none.
  int64_t ending_ = 0;             ///< Mark behind the last command of a run; 0: none.
  std::vector<Message> messages_;  ///< A ring of those that are not published.
  size_t first_message_ = 0, end_message_ = 0;
  bool waits_ = false;  ///< The walk waits for commands of the device.
};

}  // namespace

std::unique_ptr<Strand> QueuedDevice::strand(RunState& run, int device, int) {
  return std::make_unique<Walk<Queued>>(run, device, *this);
}

}  // namespace sluice::runtime
