#include "sluice/runtime/queued/messages.h"

#include "sluice/exe/words.h"

namespace sluice::runtime {

QueuedMessages::QueuedMessages(const RunState& run, exe::DeviceId device, QueuedDevice& open,
                               Commands& commands)
    : run_(run), commands_(commands) {
  size_t pinned = 0;
  for (const exe::ChannelId c : run.executable->channels.ids()) {
    const exe::Channel& channel = run.executable->channels[c];
    if (channel.from == device || channel.to == device) pinned += add_channel(c, device, open);
  }
  pending_.resize(pinned + 1);
}

// Returns the number of slots in pinned memory.
size_t QueuedMessages::add_channel(exe::ChannelId index, exe::DeviceId device, QueuedDevice& open) {
  const exe::Executable& e = *run_.executable;
  const exe::Channel& channel = e.channels[index];
  const exe::ArenaId a = channel.arena;
  const exe::SlotMemory memory = exe::slot_memory(e, channel.from, channel.to);
  require(e.arenas[a].space == memory.space && e.arenas[a].device == memory.device,
          "executable: channel {}: slots must be in {} memory of device {}, got arena {}",
          channel.name, exe::word(memory.space), memory.device, e.arenas[a].name);
  const auto capacity = static_cast<size_t>(channel.capacity);
  if (memory.space == exe::Space::kPinned) {
    if (e.arenas[a].bytes > 0)
      open.pin({run_.host_arenas[a], static_cast<size_t>(e.arenas[a].bytes)});
    return capacity;
  }
  ChannelState& state = (*run_.channels)[index];
  QueuedEnd& own = channel.from == device ? state.sender : state.receiver;
  own = {&open, &commands_, std::vector<int64_t>(capacity)};
  return 0;
}

bool QueuedMessages::publish() {
  for (; first_ < end_; ++first_) {
    const Pending& p = pending_[first_ % pending_.size()];
    if (!commands_.passed(p.mark)) return false;
    p.counter->store(p.count, std::memory_order_release);
  }
  return true;
}

// The receiver has copied the last message of the slot before its mark.
bool QueuedMessages::send(const exe::Send& send, DeviceAddress operand, int64_t message,
                          const exe::Step* step) {
  ChannelState& state = this->state(send.channel);
  if (!state.can_send(message)) return false;
  const int64_t bytes = send.operand.bytes;
  if (state.sender.commands == nullptr) {
    const auto copy = [&](Queue& q) {
      q.download(pinned_slot(send.channel, message), operand, bytes);
    };
    if (bytes > 0) commands_.add(step, copy);
    publish_later(state.sent, message + 1);
    return true;
  }
  const size_t slot = state.slot(message);
  if (message >= state.capacity)
    commands_.wait(*state.receiver.commands, state.receiver.marks[slot]);
  commands_.add(step,
                [&](Queue& q) { q.copy(device_slot(send.channel, message), operand, bytes); });
  state.sender.marks[slot] = commands_.mark();
  state.sent.store(message + 1, std::memory_order_release);
  return true;
}

bool QueuedMessages::receive(const exe::Receive& receive, DeviceAddress operand, int64_t message,
                             const exe::Step* step) {
  ChannelState& state = this->state(receive.channel);
  if (!state.can_receive(message)) return false;
  const int64_t bytes = receive.operand.bytes;
  if (state.receiver.commands == nullptr) {
    const auto copy = [&](Queue& q) {
      q.upload(operand, pinned_slot(receive.channel, message), bytes);
    };
    if (bytes > 0) commands_.add(step, copy);
    publish_later(state.received, message + 1);
    return true;
  }
  const size_t slot = state.slot(message);
  commands_.wait(*state.sender.commands, state.sender.marks[slot]);
  commands_.add(step, [&](Queue& q) {
    q.copy_from(*state.sender.device, operand, device_slot(receive.channel, message), bytes);
  });
  state.receiver.marks[slot] = commands_.mark();
  state.received.store(message + 1, std::memory_order_release);
  return true;
}

std::byte* QueuedMessages::pinned_slot(exe::ChannelId number, int64_t message) const {
  const exe::Channel& channel = run_.executable->channels[number];
  return run_.host_arenas[channel.arena] + channel.slot(message);
}

DeviceAddress QueuedMessages::device_slot(exe::ChannelId number, int64_t message) const {
  const exe::Channel& channel = run_.executable->channels[number];
  return run_.arenas[channel.arena] + channel.slot(message);
}

}  // namespace sluice::runtime
