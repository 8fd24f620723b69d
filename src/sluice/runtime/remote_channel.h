#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/numbers/ring.h"
#include "sluice/runtime/process_group.h"

namespace sluice::runtime {

/// One end of a channel whose other end is in another process. The sender sends a message from its
/// slot. The receiver receives it where it is used and answers with one byte, which frees the slot.
/// So no more messages are under way than the channel has slots. No call blocks.
class RemoteChannel {
 public:
  /// `other` is the process of the other end. Uses `capacity` tags from `first_tag` on. `name` is
  /// for messages of errors.
  RemoteChannel(const std::shared_ptr<ProcessGroup>& group, int other, int first_tag,
                int64_t capacity, std::string name);

  /// Returns whether the slot of the message is free. Throws the error of a failed process.
  bool can_send(int64_t message);
  /// Sends a message; `slot` must keep its bytes until can_send() is true for the next one there.
  void send(int64_t message, std::span<const std::byte> slot);
  /// Returns whether the message has been received. If not, the call must be repeated with the same
  /// arguments. Throws the error of a failed process.
  bool receive(int64_t message, std::span<std::byte> operand);
  /// Returns whether all messages and answers have arrived. Throws the error of a failed process.
  bool is_over();

 private:
  struct Slot {
    std::unique_ptr<Messages> messages;
    std::byte answer{};
    bool open = false;       ///< A message or an answer may be under way.
    bool receiving = false;  ///< A receive has begun.
  };

  Slot& slot(int64_t message) { return slots_[message]; }
  bool settled(Slot& slot);
  template <typename F>
  void check(F&& doing) const;

  std::shared_ptr<ProcessGroup> group_;
  int other_;
  std::string name_;
  Ring<Slot> slots_;
};

}  // namespace sluice::runtime
