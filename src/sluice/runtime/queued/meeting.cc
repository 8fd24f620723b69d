#include "sluice/runtime/queued/meeting.h"

#include <algorithm>

#include "sluice/base/checked.h"

namespace sluice::runtime {

void QueueMeeting::arrive(int32_t member, int64_t number, Stage stage, int64_t mark) {
  Member& own = at(member);
  own.mark_of(stage) = mark;
  own.arrived.store(position(number, stage), std::memory_order_release);
}

bool QueueMeeting::all_arrived(int64_t number, Stage stage) const {
  return std::all_of(members_.begin(), members_.end(), [&](const Member& m) {
    return m.arrived.load(std::memory_order_acquire) >= position(number, stage);
  });
}

void QueueMeeting::reset() {
  for (Member& m : members_) m.arrived = 0;
}

bool any_bytes(const BoundCollective& collective, ByteRange (*range)(const void*, int64_t),
               int64_t members) {
  for (int64_t m = 0; m < members; ++m) {
    const ByteRange r = range(collective.state.get(), m);
    if (r.begin != r.end) return true;
  }
  return false;
}

int64_t room_of(const ByteRange& range) {
  constexpr int64_t kAlignment = 256;  // No kernel needs more.
  return round_up(range.end - range.begin, kAlignment);
}

int64_t room_bytes(const BoundCollective& collective, int64_t members) {
  int64_t max = 0;
  for (int64_t m = 0; m < members; ++m)
    max = std::max(max, room_of(collective.reads(collective.state.get(), m)));
  return checked_mul(max, members - 1);
}

}  // namespace sluice::runtime
