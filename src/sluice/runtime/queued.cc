#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "sluice/runtime/queue.h"
#include "sluice/runtime/walk.h"

namespace sluice::runtime {
namespace {

/// Enqueues the steps of a device with queues: the Kind of a Walk. Host memory is copied through
/// two slots of pinned staging memory.
class Queued {
 public:
  using Address = DeviceAddress;

  Queued(RunState& run, int device, QueuedDevice& open) : run_(run), queue_(open.queue()) {
    const exe::Executable& e = *run.executable;
    for (size_t a = 0; a < e.arenas.size(); ++a) {
      const exe::Arena& arena = e.arenas[a];
      if (arena.device != device) continue;
      if (arena.kind == exe::ArenaKind::kWorkspace) workspace_ = run.arenas[a];
      if (arena.kind == exe::ArenaKind::kStaging)
        set_staging(open, run.host_arenas[a], arena.bytes);
    }
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
    for (const LoadedFunction& f : run.loaded->functions) {
      require(f.function->device != device || f.collectives.empty(),
              "executable: device {} has queues, so no collective may use it, got function '{}'",
              device, f.function->name);
    }
    operands_.resize(run.loaded->needs.operands);
    scalars_.resize(run.loaded->needs.scalars);
  }

  static DeviceAddress address(DeviceAddress at) { return at; }

  void start() {
    // A run that was stopped may have left commands.
    on_queue([&] { queue_->drain(); });
    blamed_ = nullptr;
    reading_ = ending_ = done_ = 0;
    storing_ = false;
    for (Slot& slot : slots_) slot.mark = 0;
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
    command(kernel.step, [&] {
      queue_->launch({kernel.state,
                      {operands_.data(), kernel.arguments},
                      workspace_,
                      {scalars_.data(), kernel.scalars->size()}});
    });
    counters.kernels += share.end - share.begin;
  }

  std::optional<uint32_t> read(DeviceAddress at, int bytes, const exe::Step* step) {
    publish_messages();
    if (reading_ == 0) {
      command(step, [&] { queue_->download(word_, at, bytes); });
      reading_ = mark();
    }
    if (!passed(reading_)) return {};
    reading_ = 0;
    uint32_t value = 0;
    std::memcpy(&value, word_, static_cast<size_t>(bytes));
    return value;
  }

  int64_t issue(const exe::Issue& issue, DeviceAddress memory, int64_t entry, const exe::Step* step,
                bool /*awaited_next*/) {
    publish_messages();
    const bool in =
        issue.kind == exe::TransferKind::kStreamIn || issue.kind == exe::TransferKind::kRemoteLoad;
    while (done_ < issue.memory.bytes) {
      const int64_t bytes = std::min(slot_bytes_, issue.memory.bytes - done_);
      if (!(in ? load(issue, memory, entry, bytes, step)
               : store(issue, memory, entry, bytes, step)))
        return kNotYet;
      done_ += bytes;
    }
    done_ = 0;
    return issue.queue == 0 ? kEnded : 0;
  }

  /// Transfers end in issue().
  static bool wait(int32_t, int64_t) { return true; }
  static bool park() { return false; }
  bool waits_for_device() const { return waits_; }
  const exe::Step* blamed() const { return blamed_; }

  bool send(const exe::Send& send, DeviceAddress operand, int64_t message, const exe::Step* step) {
    ChannelState& state = (*run_.channels)[static_cast<size_t>(send.channel)];
    publish_messages();
    if (!state.can_send(message)) return false;
    command(step,
            [&] { queue_->download(slot_of(send.channel, message), operand, send.operand.bytes); });
    publish_later(state.sent, message + 1);
    return true;
  }

  bool receive(const exe::Receive& receive, DeviceAddress operand, int64_t message,
               const exe::Step* step) {
    ChannelState& state = (*run_.channels)[static_cast<size_t>(receive.channel)];
    publish_messages();
    if (!state.can_receive(message)) return false;
    command(step, [&] {
      queue_->upload(operand, slot_of(receive.channel, message), receive.operand.bytes);
    });
    publish_later(state.received, message + 1);
    return true;
  }

  /// The constructor refuses the plans that would need this.
  static bool collective(const exe::Collective&, const BoundCollective&, DeviceAddress,
                         DeviceAddress, int64_t) {
    return false;
  }

  bool finish() {
    publish_messages();
    if (ending_ == 0) ending_ = mark();
    if (!passed(ending_)) return false;
    publish_messages();
    on_queue([&] { queue_->check(); });
    return true;
  }

  Counters counters;

 private:
  /// A part of the staging memory.
  struct Slot {
    std::byte* memory = nullptr;
    int64_t mark = 0;  ///< Behind the last copy that uses it; 0: no copy uses it.
  };

  /// A message whose copy may not have ended. Then its channel gets the count.
  struct Message {
    int64_t mark = 0;
    std::atomic<int64_t>* counter = nullptr;
    int64_t count = 0;
  };

  std::byte* slot_of(int32_t number, int64_t message) const {
    const exe::Channel& channel = run_.executable->channels[static_cast<size_t>(number)];
    return run_.host_arenas[static_cast<size_t>(channel.arena)] + channel.offset +
           message % channel.capacity * channel.slot_bytes;
  }
  void publish_later(std::atomic<int64_t>& counter, int64_t count) {
    messages_[end_message_++ % messages_.size()] = {mark(), &counter, count};
  }
  void publish_messages() {
    for (; first_message_ < end_message_; ++first_message_) {
      const Message& m = messages_[first_message_ % messages_.size()];
      if (!passed(m.mark)) return;
      m.counter->store(m.count, std::memory_order_release);
    }
  }

  void set_staging(QueuedDevice& open, std::byte* memory, int64_t bytes) {
    if (bytes == 0) return;
    open.pin({memory, static_cast<size_t>(bytes)});
    slot_bytes_ = exe::StagingPlan::of_arena(bytes).slot;
    word_ = memory;
    for (size_t i = 0; i < slots_.size(); ++i)
      slots_[i].memory = memory + exe::StagingPlan::kWord + static_cast<int64_t>(i) * slot_bytes_;
  }

  /// Calls f, which uses the queue. The step of the command that failed gets the blame.
  template <typename F>
  std::invoke_result_t<F> on_queue(F&& f) {
    try {
      return f();
    } catch (...) {
      const int64_t failed = queue_->begun();
      if (failed > 0 && commands_ - failed < static_cast<int64_t>(steps_.size()))
        blamed_ = steps_[static_cast<size_t>(failed) % steps_.size()];
      throw;
    }
  }
  template <typename F>
  void command(const exe::Step* step, F&& f) {
    ++commands_;
    steps_[static_cast<size_t>(commands_) % steps_.size()] = step;
    on_queue(f);
  }
  int64_t mark() {
    return on_queue([&] { return queue_->mark(); });
  }
  bool passed(int64_t mark) {
    waits_ = !on_queue([&] { return queue_->passed(mark); });
    return !waits_;
  }
  bool is_free(Slot& slot) {
    if (slot.mark != 0 && passed(slot.mark)) slot.mark = 0;
    return slot.mark == 0;
  }

  std::byte* array(const exe::Issue& issue, int64_t entry) const {
    return run_.streams->entry(issue.object, entry, run_.replica) + done_;
  }

  /// Loads the next bytes of a transfer into device memory. Returns false without a free slot.
  bool load(const exe::Issue& issue, DeviceAddress memory, int64_t entry, int64_t bytes,
            const exe::Step* step) {
    Slot& slot = slots_[next_];
    if (!is_free(slot)) return false;
    const auto size = static_cast<size_t>(bytes);
    if (issue.kind == exe::TransferKind::kStreamIn) {
      std::memcpy(slot.memory, array(issue, entry), size);
    } else {
      run_.remote->load(issue.object, entry, done_, {slot.memory, size});
    }
    command(step, [&] { queue_->upload(memory + done_, slot.memory, bytes); });
    slot.mark = mark();
    next_ = (next_ + 1) % slots_.size();
    return true;
  }

  /// Stores the next bytes of a transfer. Returns false until they have arrived.
  bool store(const exe::Issue& issue, DeviceAddress memory, int64_t entry, int64_t bytes,
             const exe::Step* step) {
    Slot& slot = slots_[next_];
    if (!is_free(slot)) return false;
    if (!storing_) {
      command(step, [&] { queue_->download(slot.memory, memory + done_, bytes); });
      slot.mark = mark();
      storing_ = true;
      if (!is_free(slot)) return false;
    }
    storing_ = false;
    const auto size = static_cast<size_t>(bytes);
    if (issue.kind == exe::TransferKind::kStreamOut) {
      std::memcpy(array(issue, entry), slot.memory, size);
    } else {
      run_.remote->store(issue.object, entry, done_, {slot.memory, size});
    }
    return true;
  }

  RunState& run_;
  std::unique_ptr<Queue> queue_;
  DeviceAddress workspace_;
  std::vector<DeviceAddress> operands_;  ///< Operands of a launch.
  std::vector<int64_t> scalars_;
  std::byte* word_ = nullptr;  ///< Pinned memory of read().
  std::array<Slot, 2> slots_;
  int64_t slot_bytes_ = 0;
  size_t next_ = 0;                ///< Slot of the next piece.
  int64_t done_ = 0;               ///< Bytes of the current transfer that have passed a slot.
  bool storing_ = false;           ///< The next piece is on its way to its slot.
  int64_t reading_ = 0;            ///< Mark behind the copy of read(); 0: none.
  int64_t ending_ = 0;             ///< Mark behind the last command of a run; 0: none.
  std::vector<Message> messages_;  ///< A ring of those that are not published.
  size_t first_message_ = 0, end_message_ = 0;
  bool waits_ = false;  ///< The last mark that was asked for has not passed.
  int64_t commands_ = 0;
  std::array<const exe::Step*, 4096> steps_{};  ///< By number of the command, modulo the size.
  const exe::Step* blamed_ = nullptr;
};

}  // namespace

std::unique_ptr<Strand> QueuedDevice::strand(RunState& run, int device, int) {
  return std::make_unique<Walk<Queued>>(run, device, *this);
}

}  // namespace sluice::runtime
