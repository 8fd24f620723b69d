#include "sluice/runtime/remote_channel.h"

#include <utility>

namespace sluice::runtime {

RemoteChannel::RemoteChannel(const std::shared_ptr<ProcessGroup>& group, int other, int first_tag,
                             int64_t capacity, std::string name)
    : group_(group), other_(other), name_(std::move(name)), slots_(capacity) {
  int tag = first_tag;
  for (Slot& s : slots_) s.messages = group->messages(tag++);
}

bool RemoteChannel::settled(Slot& slot) {
  if (slot.open && slot.messages->done()) slot.open = false;
  return !slot.open;
}

// Throws the error of a failed process, and names what this process was doing.
template <typename F>
void RemoteChannel::check(F&& doing) const {
  try {
    group_->check();
  } catch (Error& e) {
    throw e.note(doing());
  }
}

bool RemoteChannel::can_send(int64_t message) {
  if (settled(slot(message))) return true;
  check([&] {
    return fmt::format("sending message {} of channel {} to process {}", message, name_, other_);
  });
  return false;
}

void RemoteChannel::send(int64_t message, std::span<const std::byte> bytes) {
  Slot& s = slot(message);
  s.messages->send(other_, bytes);
  s.messages->receive(other_, {&s.answer, 1});
  s.open = true;
}

bool RemoteChannel::receive(int64_t message, std::span<std::byte> operand) {
  Slot& s = slot(message);
  if (!s.receiving) {
    s.messages->receive(other_, operand);
    s.receiving = s.open = true;
  }
  if (!settled(s)) {
    check([&] {
      return fmt::format("receiving message {} of channel {} from process {}", message, name_,
                         other_);
    });
    return false;
  }
  s.receiving = false;
  s.messages->send(other_, {&s.answer, 1});
  s.open = true;
  return true;
}

bool RemoteChannel::is_over() {
  for (Slot& s : slots_) {
    if (settled(s)) continue;
    check([&] { return fmt::format("ending channel {} with process {}", name_, other_); });
    return false;
  }
  return true;
}

}  // namespace sluice::runtime
