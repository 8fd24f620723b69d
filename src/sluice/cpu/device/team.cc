#include "sluice/cpu/device/team.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sluice/cpu/layout/memory.h"
#include "sluice/runtime/walk.h"

namespace sluice::cpu {
namespace {

using runtime::BoundCollective;
using runtime::ChannelState;
using runtime::IoQueue;
using runtime::LoadedKernel;
using runtime::RunState;
using runtime::TaskRange;

/// A worker of a team: the StepRunner of a Walk (runtime/walk.h).
class Team {
 public:
  using Address = std::byte*;

  Team(RunState& run, exe::DeviceId device, int worker)
      : run_(run),
        device_(device),
        worker_(worker),
        workers_(run.executable->devices[device].workers) {
    workspace_ = address(run.workspace(device, worker));
    for (const exe::ChannelId c : run.executable->channels.ids()) {
      const exe::Channel& channel = run.executable->channels[c];
      runtime::RemoteChannel* const remote = (*run.channels)[c].remote.get();
      if (remote != nullptr && leads() && (channel.from == device || channel.to == device))
        remote_.push_back(remote);
    }
  }

  static std::byte* address(runtime::DeviceAddress at) { return pointer_to(at); }

  void start() {
    awaited_ = nullptr;
    blamed_ = nullptr;
    at_barrier_ = false;
    stage_ = Stage::kOutside;
    barriers_ = 0;
  }

  bool leads() const { return worker_ == 0; }

  bool barrier() {
    if (workers_ == 1) return true;
    std::atomic<int64_t>& arrived = *run_.arrived[device_];
    if (!at_barrier_) {
      at_barrier_ = true;
      ++barriers_;
      ++counters.barriers;
      arrived.fetch_add(1, std::memory_order_acq_rel);
    }
    if (arrived.load(std::memory_order_acquire) < barriers_ * workers_) return false;
    at_barrier_ = false;
    return true;
  }

  TaskRange share_of(const LoadedKernel& kernel) {
    if (leads()) {
      counters.bytes += kernel.operand_bytes;
      counters.flops += kernel.flops;
    }
    if (kernel.tasks == 1) return {0, leads()};
    return {kernel.tasks * worker_ / workers_, kernel.tasks * (worker_ + 1) / workers_};
  }

  void run(const LoadedKernel& kernel, std::byte* const* operands, const int64_t* scalars,
           TaskRange share) {
    const runtime::KernelBlock block{operands, workspace_, scalars};
    for (int64_t task = share.begin; task < share.end; ++task)
      kernel.run(kernel.state, block, task);
    counters.kernels += share.end - share.begin;
  }

  static std::optional<uint32_t> read(const std::byte* at, int bytes, const exe::Step*) {
    uint32_t value = 0;
    std::memcpy(&value, at, static_cast<size_t>(bytes));
    return value;
  }

  int64_t issue(const exe::Issue& issue, std::byte* memory, int64_t entry, const exe::Step* step,
                bool awaited_next) {
    runtime::Transfer t;
    t.memory = memory;
    t.bytes = issue.memory.bytes;
    t.step = step;
    t.in =
        issue.kind == exe::TransferKind::kStreamIn || issue.kind == exe::TransferKind::kRemoteLoad;
    if (issue.is_stream()) {
      if (runtime::FeedPort* const port = run_.port(issue.stream())) return move(*port, t);
      t.other = run_.streams->entry(issue.stream(), entry, run_.replica);
    } else {
      t.remote = run_.remote.get();
      t.buffer = issue.buffer();
      t.entry = entry;
    }
    if (issue.queue == 0) {
      t.run();
      return runtime::kEnded;
    }
    const int64_t number = queue(issue.queue).issue(t);
    if (number < 0) return runtime::kNotYet;
    // If the next step waits for the transfer, this worker runs it there.
    if (!awaited_next) call_io_thread(issue.queue);
    return number;
  }

  bool wait(int32_t number_of_queue, int64_t transfer) {
    IoQueue& from = queue(number_of_queue);
    if (run_.has_io_threads && !from.done(transfer)) {
      // Run transfers that have not begun on this thread. Waking an io thread and this thread again
      // would take longer.
      try {
        from.advance(transfer);
      } catch (...) {
        blamed_ = from.current();
        throw;
      }
      if (from.pending()) call_io_thread(number_of_queue);
    }
    awaited_ = from.done(transfer) ? nullptr : &from;
    awaited_number_ = transfer;
    return awaited_ == nullptr;
  }

  bool park() const {
    if (awaited_ == nullptr) return false;
    awaited_->await(awaited_number_);
    return true;
  }

  static constexpr bool has_room() { return true; }
  static void settle() {}
  static bool drained() { return true; }
  static bool waits_for_device() { return false; }
  const exe::Step* blamed() const { return blamed_; }

  bool send(const exe::Send& send, const std::byte* operand, int64_t message, const exe::Step*) {
    ChannelState& state = (*run_.channels)[send.channel];
    const bool ready = state.remote ? state.remote->can_send(message) : state.can_send(message);
    if (!ready) return false;
    const auto bytes = static_cast<size_t>(send.operand.bytes);
    std::byte* const at = slot(send.channel, message);
    std::memcpy(at, operand, bytes);
    if (state.remote) {
      state.remote->send(message, {at, bytes});
    } else {
      state.sent.store(message + 1, std::memory_order_release);
    }
    return true;
  }

  bool receive(const exe::Receive& receive, std::byte* operand, int64_t message, const exe::Step*) {
    ChannelState& state = (*run_.channels)[receive.channel];
    const auto bytes = static_cast<size_t>(receive.operand.bytes);
    if (state.remote) return state.remote->receive(message, {operand, bytes});
    if (!state.can_receive(message)) return false;
    std::memcpy(operand, slot(receive.channel, message), bytes);
    state.received.store(message + 1, std::memory_order_release);
    return true;
  }

  // A share may read inputs once all workers of all members have arrived. A worker continues once
  // all workers have finished.
  bool collective(const exe::Collective& collective, const BoundCollective& bound,
                  const std::byte* input, const std::byte* output, int64_t number,
                  const exe::Step*) {
    const auto [meeting, queued, member] =
        run_.communicator->membership(device_, collective.group, run_.replica);
    if (stage_ == Stage::kOutside) {
      if (leads()) {
        at(meeting->inputs, member) = address_of(input);
        at(meeting->outputs, member) = address_of(output);
        if (member == meeting->first_member()) meeting->collective = &bound;
      }
      meeting->come();
      stage_ = Stage::kCame;
    }
    if (stage_ == Stage::kCame) {
      if (!meeting->all_came(number)) return wait_for_peers();
      bound.run(bound.state.get(),
                {meeting->inputs.data(), meeting->outputs.data(), member, worker_, workers_});
      if (leads()) {
        for (const exe::Operand& o : collective.operands) counters.bytes += o.bytes;
      }
      meeting->be_done();
      stage_ = Stage::kDone;
    }
    if (!meeting->all_done(number)) return wait_for_peers();
    stage_ = Stage::kOutside;
    return true;
  }

  bool finish() {
    return std::all_of(remote_.begin(), remote_.end(), [](auto* c) { return c->is_over(); });
  }

  runtime::Counters counters;

 private:
  /// Moves the next entry of a feed on this thread, once it is ready.
  static int64_t move(runtime::FeedPort& port, runtime::Transfer& t) {
    if (!port.ready()) return runtime::kNotYet;
    t.other = port.next();
    t.run();
    port.done();
    return runtime::kEnded;
  }

  IoQueue& queue(int32_t number) const { return *at(run_.io[device_], number); }

  void call_io_thread(int32_t queue) const {
    if (!run_.has_io_threads) return;
    std::atomic<uint32_t>& issued = *at(run_.io_issued, queue - 1);
    issued.fetch_add(1);
    issued.notify_one();
  }

  std::byte* slot(exe::ChannelId number, int64_t message) const {
    const exe::Channel& channel = run_.executable->channels[number];
    std::byte* const pinned = run_.host_arenas[channel.arena];
    return (pinned != nullptr ? pinned : address(run_.arenas[channel.arena])) +
           channel.slot(message);
  }

  /// Returns false. Throws the error of a failed process.
  bool wait_for_peers() const {
    run_.communicator->check();
    return false;
  }

  RunState& run_;
  exe::DeviceId device_;
  int worker_;
  int workers_;
  std::byte* workspace_ = nullptr;
  /// Step whose transfer failed while this worker ran it in a wait.
  const exe::Step* blamed_ = nullptr;
  /// Queue of the transfer that the current step waits for, or null.
  const IoQueue* awaited_ = nullptr;
  int64_t awaited_number_ = 0;
  enum class Stage : uint8_t { kOutside, kCame, kDone };
  Stage stage_ = Stage::kOutside;  ///< Stage of the current collective.
  bool at_barrier_ = false;
  int64_t barriers_ = 0;
  /// Channels to other processes whose messages this worker sends or receives.
  std::vector<runtime::RemoteChannel*> remote_;
};

}  // namespace

std::unique_ptr<runtime::Strand> make_strand(RunState& run, exe::DeviceId device, int worker) {
  return std::make_unique<runtime::Walk<Team>>(run, device, worker);
}

}  // namespace sluice::cpu
